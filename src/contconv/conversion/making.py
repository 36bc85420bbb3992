"""One discrete layer -> its continuous twin, or the reasons why not."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from contconv.conversion.geometry import Geometry, SameWindows, Spread, Windows
from contconv.conversion.layers import (
    ConvertedConv1d,
    ConvertedConv2d,
    ConvertedConv3d,
    ConvertedConvTranspose1d,
    ConvertedConvTranspose2d,
    ConvertedConvTranspose3d,
    transposed,
)
from contconv.conversion.resampling import ConvertedPool, ConvertedUpsample
from contconv.kernels import TapKernel
from contconv.overrides import announce

CONVS = {
    nn.Conv1d: ConvertedConv1d,
    nn.Conv2d: ConvertedConv2d,
    nn.Conv3d: ConvertedConv3d,
    nn.ConvTranspose1d: ConvertedConvTranspose1d,
    nn.ConvTranspose2d: ConvertedConvTranspose2d,
    nn.ConvTranspose3d: ConvertedConvTranspose3d,
}
POOLS = {nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3, nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3}
UPSAMPLES = (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
KERNELS = {"spline": "spline", "table": "nearest"}  # convert(kernel=...) -> TapKernel(interpolation=...)


def is_candidate(module: nn.Module) -> bool:
    """Whether a reader of the report would expect to find this module in it."""
    quantized = type(module).__module__.startswith("torch.ao.") and "Conv" in type(module).__name__
    return isinstance(module, (_ConvNd, *POOLS, *UPSAMPLES)) or quantized


def is_resizing(module: nn.Module) -> bool:
    """Whether the module changes the size by a factor: a stride, or an upsampling."""
    if isinstance(module, UPSAMPLES):
        return True
    if isinstance(module, tuple(POOLS)):
        return any(stride != 1 for stride in _per_axis(module, "stride"))
    return any(stride != 1 for stride in getattr(module, "stride", ()))


def why_not(module: nn.Module, same: tuple[type[nn.Module], ...] = ()) -> list[str]:
    """The reasons against converting a module; none: it can be."""
    if isinstance(module, LazyModuleMixin):
        return [f"{type(module).__name__} has no weights yet: run the model once first"]
    base = _base(module)
    if base is None:
        return [f"{type(module).__name__} is none of {', '.join(t.__name__ for t in (*CONVS, *POOLS, nn.Upsample))}"]
    reasons = _own_behaviour(module, base) if not isinstance(module, same) else []
    if isinstance(module, UPSAMPLES) and module.scale_factor is None:
        reasons.append(f"it has a fixed output size, {module.size}, whatever its siblings do")
    if getattr(module, "return_indices", False):
        reasons.append("it returns indices, which have no meaning at another scale")
    if isinstance(module, _ConvNd) and not (module.weight.is_floating_point()):
        reasons.append(f"its weight is {module.weight.dtype}; only real floating-point weights can be converted")
    return reasons


def _own_behaviour(module: nn.Module, base: type[nn.Module]) -> list[str]:
    """What a module does beyond its base class, and would lose."""
    reasons = []
    names = ("forward", "_conv_forward")
    changed = [name for name in names if getattr(type(module), name, None) is not getattr(base, name, None)]
    if changed:
        reasons.append(f"{type(module).__name__} is a {base.__name__} with a {changed[0]} of its own")
    if "forward" in vars(module):
        reasons.append("its forward was replaced on the instance")
    hooks = [
        *(hook for hook in module._forward_pre_hooks.values() if not _is_understood(hook)),
        *module._forward_hooks.values(),
        *module._backward_hooks.values(),
        *module._backward_pre_hooks.values(),
    ]
    if hooks:
        called = (getattr(hook, "__name__", type(hook).__name__) for hook in hooks)
        reasons.append(f"it has hooks ({', '.join(called)}), which would be lost: remove them first")
    return reasons


def _is_understood(hook: object) -> bool:
    return isinstance(hook, WeightNorm) or hook is announce


def notes(module: nn.Module) -> str:
    """What a reader should know about a conversion that was made."""
    if parametrize.is_parametrized(module) or _weight_norms(module):
        return "its parametrization was evaluated once; the result is the parameter now"
    return ""


def _base(module: nn.Module) -> type[nn.Module] | None:
    """The PyTorch class that a module is, or is derived from."""
    return next((base for base in (*CONVS, *POOLS, nn.Upsample) if isinstance(module, base)), None)


def twin(module: nn.Module, kernel: str, same: tuple[type[nn.Module], ...] = ()) -> nn.Module:
    """The continuous twin of a module that has no reasons against it."""
    if isinstance(module, tuple(POOLS)):
        made: nn.Module = ConvertedPool(module, pool_geometry(module))  # type: ignore[arg-type]
    elif isinstance(module, nn.Upsample):
        made = ConvertedUpsample(module)
    else:
        made = _conv_twin(module, KERNELS[kernel], isinstance(module, same))  # type: ignore[arg-type]
    return made.train(module.training)


def _conv_twin(conv: _ConvNd, interpolation: str, same: bool) -> nn.Module:
    spread = isinstance(conv, _ConvTransposeNd)
    weight = evaluated_weight(conv)
    tap_kernel = TapKernel.from_taps(
        transposed(weight, conv.groups) if spread else weight, groups=conv.groups, dilation=conv.dilation,
        density=conv.stride if spread else 1, interpolation=interpolation,
    )  # fmt: skip
    tap_kernel.weight.requires_grad_(any(p.requires_grad for p in conv.parameters() if p is not conv.bias))
    base = _base(conv)
    assert base is not None
    geometry = spread_geometry(conv) if spread else conv_geometry(conv, same)
    bias = conv.bias if conv.bias is None or isinstance(conv.bias, nn.Parameter) else conv.bias.detach().clone()
    return CONVS[base](tap_kernel, geometry, bias=bias, padding_mode=conv.padding_mode)


def evaluated_weight(conv: _ConvNd) -> Tensor:
    """The weight as it is now: of a normalised layer, from the parameters that it is made of."""
    with torch.no_grad():
        for hook in _weight_norms(conv):
            if hook.name == "weight":
                return hook.compute_weight(conv)
        training = conv.training
        try:  # a spectral norm changes its state whenever the weight is read in training
            conv.eval()
            return conv.weight.detach()
        finally:
            conv.train(training)


def _weight_norms(module: nn.Module) -> list[WeightNorm]:
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm)]


def conv_geometry(conv: _ConvNd, same: bool = False) -> list[Geometry]:
    """Where the windows of a convolution lie."""
    if same:
        return [SameWindows(*axis) for axis in zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)]
    return [
        Windows(taps, stride, dilation, left, right)
        for taps, stride, dilation, (left, right) in zip(
            conv.kernel_size, conv.stride, conv.dilation, paddings(conv), strict=True
        )
    ]


def paddings(conv: _ConvNd) -> list[tuple[int, int]]:
    """Pixels before and after each axis."""
    if conv.padding == "valid":
        return [(0, 0)] * len(conv.kernel_size)
    if conv.padding == "same":
        totals = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(p), int(p)) for p in conv.padding]


def spread_geometry(conv: _ConvNd) -> list[Geometry]:
    """Where the pixels of a transposed convolution go."""
    pads = [left for left, _ in paddings(conv)]
    return [
        Spread(*axis)
        for axis in zip(conv.kernel_size, conv.stride, conv.dilation, pads, conv.output_padding, strict=True)
    ]


def pool_geometry(pool: nn.Module) -> list[Windows]:
    """Where the windows of a pooling lie."""
    sizes = zip(*(_per_axis(pool, name) for name in ("kernel_size", "stride", "dilation", "padding")), strict=True)
    return [Windows(k, s, d, p, p, bool(pool.ceil_mode)) for k, s, d, p in sizes]


def _per_axis(pool: nn.Module, name: str) -> tuple[int, ...]:
    """One number per axis of an option of a pooling, which may be one for all, or not be there."""
    axes = next(count for base, count in POOLS.items() if isinstance(pool, base))
    value = getattr(pool, name, 1)
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
