"""What an installed contconv must do. Run with `native` or `pure`: whether the native kernel should be there."""

import sys
from importlib import metadata, resources
from pathlib import Path

import torch
from torch.nn import functional as F

import contconv
from contconv import ContinuousConv2d, Cubic, SplineKernel, continuous_conv, explain, native


def check(native_expected: bool) -> None:
    assert Path(sys.prefix) in Path(contconv.__file__).parents, f"not the installed package: {contconv.__file__}"
    assert metadata.version("contconv") == contconv.__version__
    assert native.available() is native_expected, native.status()
    assert resources.files("contconv").joinpath("py.typed").is_file()
    check_convolution()
    check_resizing()


def check_convolution() -> None:
    """Scale 1/2 is a strided convolution, also in its gradient."""
    taps = torch.randn(6, 4, 3, 3)
    layer = ContinuousConv2d(4, 6, 3, kernel=SplineKernel.from_taps(taps), center=-0.5, bias=False)
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    y, want = layer(x, scale=1 / 2), F.conv2d(x, taps, stride=2, padding=1)
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    for result in zip(*(torch.autograd.grad(out.sum(), x) for out in (y, want)), strict=True):
        torch.testing.assert_close(*result, rtol=1e-4, atol=1e-4)


def check_resizing() -> None:
    """At any scale every strategy gives the same; fixed kernels equal `F.interpolate`."""
    layer = ContinuousConv2d(4, 6, 3)
    x = torch.randn(1, 4, 15, 15)
    ways = [name for name, reasons in explain(layer, x, scale=0.7).reasons.items() if not reasons]
    results = []
    for layer.strategy in ways:
        results.append(layer(x, scale=0.7))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-4)
    results[0].sum().backward()
    resized = continuous_conv(x, Cubic(), size=(20, 9), padding_mode="replicate")
    torch.testing.assert_close(resized, F.interpolate(x, (20, 9), mode="bicubic"), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    check(native_expected=sys.argv[1] == "native")
    print(f"contconv {contconv.__version__} works. {native.status()}")
