"""One discrete layer -> its continuous twin, or the reasons why not."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from contconv.conversion.geometry import Windows
from contconv.conversion.layers import (
    ConvertedConv1d,
    ConvertedConv2d,
    ConvertedConv3d,
    ConvertedConvTranspose1d,
    ConvertedConvTranspose2d,
    ConvertedConvTranspose3d,
    transposed,
)
from contconv.conversion.placing import Placing
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


def why_not(module: nn.Module, placing: Placing | str) -> list[str]:
    """The reasons against converting a module whose windows lie so, or are unknown for a reason; none: it can be."""
    if isinstance(module, LazyModuleMixin):
        return [f"{type(module).__name__} has no weights yet: run the model once first"]
    base = base_of(module)
    if base is None:
        return [f"{type(module).__name__} is none of {', '.join(t.__name__ for t in (*CONVS, *POOLS, nn.Upsample))}"]
    reasons = losses(module)
    if has_own_forward(module) and isinstance(placing, str):
        own = f"{type(module).__name__} is a {base.__name__} with a forward of its own"
        reasons.append(f"{own}, {placing}" if placing else own)
    if isinstance(module, UPSAMPLES) and module.scale_factor is None:
        reasons.append(f"it has a fixed output size, {module.size}, whatever its siblings do")
    if getattr(module, "return_indices", False):
        reasons.append("it returns indices, which have no meaning at another scale")
    if isinstance(module, _ConvNd) and not (module.weight.is_floating_point()):
        reasons.append(f"its weight is {module.weight.dtype}; only real floating-point weights can be converted")
    return reasons


def has_own_forward(module: nn.Module) -> bool:
    """Whether a subclass computes its output in a way of its own."""
    base = base_of(module)
    return any(
        getattr(type(module), name, None) is not getattr(base, name, None) for name in ("forward", "_conv_forward")
    )


def losses(module: nn.Module) -> list[str]:
    """What was hung on a module, and would be lost."""
    reasons = ["its forward was replaced on the instance"] if "forward" in vars(module) else []
    hooks = [
        hook
        for part in module.modules()
        for hook in (
            *(hook for hook in part._forward_pre_hooks.values() if not _is_understood(hook)),
            *part._forward_hooks.values(),
            *part._backward_hooks.values(),
            *part._backward_pre_hooks.values(),
        )
    ]
    if hooks:
        called = (getattr(hook, "__name__", type(hook).__name__) for hook in hooks)
        reasons.append(f"it has hooks ({', '.join(called)}), which would be lost: remove them first")
    return reasons


def _is_understood(hook: object) -> bool:
    return isinstance(hook, WeightNorm) or hook is announce


def notes(module: nn.Module, placing: Placing | str) -> str:
    """What a reader should know about a conversion that was made."""
    said = []
    if parametrize.is_parametrized(module) or weight_norms(module):
        said.append("its parametrization was evaluated once; the result is the parameter now")
    if isinstance(placing, Placing) and has_own_forward(module):
        said.append(f"its own forward was tried out: a convolution that {placing.words}")
    return "; ".join(said)


def base_of(module: nn.Module) -> type[nn.Module] | None:
    """The PyTorch class that a module is, or is derived from."""
    return next((base for base in (*CONVS, *POOLS, nn.Upsample) if isinstance(module, base)), None)


def twin(module: nn.Module, kernel: str, placing: Placing | str) -> nn.Module:
    """The continuous twin of a module that has no reasons against it, and its windows there."""
    if isinstance(module, tuple(POOLS)):
        made: nn.Module = ConvertedPool(module, pool_geometry(module))  # type: ignore[arg-type]
    elif isinstance(module, nn.Upsample):
        made = ConvertedUpsample(module)
    else:
        assert isinstance(placing, Placing)
        made = conv_twin(module, KERNELS[kernel], placing)  # type: ignore[arg-type]
    return made.train(module.training)


def conv_twin(conv: _ConvNd, interpolation: str, placing: Placing) -> nn.Module:
    """The continuous layer with a convolution's weights, as they are now, and these windows."""
    spread = isinstance(conv, _ConvTransposeNd)
    weight = evaluated_weight(conv)
    tap_kernel = TapKernel.from_taps(
        transposed(weight, conv.groups) if spread else weight, groups=conv.groups, dilation=conv.dilation,
        density=conv.stride if spread else 1, interpolation=interpolation,
    )  # fmt: skip
    tap_kernel.weight.requires_grad_(any(p.requires_grad for p in conv.parameters() if p is not conv.bias))
    base = base_of(conv)
    assert base is not None
    bias = conv.bias if conv.bias is None or isinstance(conv.bias, nn.Parameter) else conv.bias.detach().clone()
    return CONVS[base](tap_kernel, placing.geometry, bias=bias, padding_mode=placing.padding_mode)


def evaluated_weight(conv: _ConvNd) -> Tensor:
    """The weight as it is now: of a normalised layer, from the parameters that it is made of."""
    with torch.no_grad():
        for hook in weight_norms(conv):
            if hook.name == "weight":
                return hook.compute_weight(conv)
        training = conv.training
        try:  # a spectral norm changes its state whenever the weight is read in training
            conv.eval()
            return conv.weight.detach()
        finally:
            conv.train(training)


def weight_norms(module: nn.Module) -> list[WeightNorm]:
    """The hooks by which `nn.utils.weight_norm` makes a module's weight."""
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm)]


def pool_geometry(pool: nn.Module) -> list[Windows]:
    """Where the windows of a pooling lie."""
    sizes = zip(*(_per_axis(pool, name) for name in ("kernel_size", "stride", "dilation", "padding")), strict=True)
    return [Windows(k, s, d, p, p, bool(pool.ceil_mode)) for k, s, d, p in sizes]


def _per_axis(pool: nn.Module, name: str) -> tuple[int, ...]:
    """One number per axis of an option of a pooling, which may be one for all, or not be there."""
    axes = next(count for base, count in POOLS.items() if isinstance(pool, base))
    value = getattr(pool, name, 1)
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
