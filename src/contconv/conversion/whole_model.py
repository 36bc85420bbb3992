"""A whole model: its convolutions replaced by their continuous twins."""

import copy
from collections import defaultdict
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from contconv.conversion.layers import ConvertedConv
from contconv.conversion.making import KERNELS, is_candidate, notes, twin, why_not
from contconv.conversion.placing import Placing
from contconv.conversion.report import UNCHOSEN, Entry, Report
from contconv.conversion.selection import Layers, selected
from contconv.conversion.trying import found_placing
from contconv.overrides import Resizing, announced


@torch.inference_mode(False)
def convert(
    model: nn.Module,
    layers: Layers = "strided",
    *,
    kernel: str = "spline",
    inplace: bool = False,
) -> nn.Module:
    """Replace convolutions by continuous ones with the same weights, and so with the same outputs.

    layers: "strided" (all convolutions, transposed ones, poolings and upsamplings that change the size), "all" (and the
        convolutions that do not), a module type, a name or a pattern ("layer2.*"), a list of these, or a predicate
        (name, module) -> bool.
    kernel: what fills in between the taps at other scales: "spline", or "table" for the nearest tap.
    inplace: change this model; otherwise a copy is changed and returned.

    A subclass with a forward of its own is tried out on inputs of many sizes: if it is a convolution that pads in a way
    of its own (as TensorFlow's "SAME" does, or by a padding layer inside), its twin does too; else it stays.

    What was replaced, what not, and why: `contconv.conversion_report(model)`.

    >>> model = contconv.convert(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU()))
    >>> print(contconv.conversion_report(model))
    replaced: 1, kept: 0
      0  Conv2d -> ConvertedConv2d
    """
    _check(model, kernel)
    model = model if inplace else _copied(model)
    names = _names(model)
    first = {name: all_names[0] for all_names in names.values() for name in all_names}
    modules = {all_names[0]: module for module, all_names in names.items()}
    chosen = selected({name: module for module, all_names in names.items() for name in all_names}, layers)
    meant = {first[name]: why for name, why in chosen.items()}
    placings = {name: found_placing(modules[name]) for name in meant}
    against = _reasons(modules, placings)
    for name, why in meant.items():
        if why == "named" and against[name]:
            raise ValueError(f"layers: {name or 'the model'} cannot be converted: {'; '.join(against[name])}")

    able = [name for name in meant if not against[name]]
    twins = {name: twin(modules[name], kernel, placings[name]) for name in able if not _is_inside(name, able)}
    _tie(modules, twins)
    reasons = {name: "; ".join(found) for name, found in against.items()}
    reasons |= {name: notes(modules[name], placings[name]) for name in twins}
    entries = tuple(
        _entry(names[module], module, twins.get(name), reasons.get(name, UNCHOSEN))
        for name, module in modules.items()
        if (is_candidate(module) or isinstance(module, Resizing) or name in meant) and not _is_inside(name, twins)
    )
    model = _replaced(model, names, twins)
    model._contconv_report = Report(entries, kernel)  # type: ignore[assignment]
    announced(model)
    return model


def conversion_report(model: nn.Module) -> Report:
    """What the last `convert` that returned this model did."""
    report = getattr(model, "_contconv_report", None)
    if not isinstance(report, Report):
        raise ValueError(f"model: this {type(model).__name__} has no report: it is not what contconv.convert returned")
    return report


def _check(model: nn.Module, kernel: str) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise TypeError(f"model is compiled ({type(model).__name__}): convert it first and compile afterwards")
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")


def _copied(model: nn.Module) -> nn.Module:
    """A deep copy. Weights that hooks compute (weight_norm, pruning) are results, which deepcopy alone refuses."""
    results = [
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
    return copy.deepcopy(model, {id(result): result.detach().clone() for result in results})


def _names(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Every module and all its names, but not what is inside layers that are continuous already."""
    found: dict[nn.Module, list[str]] = defaultdict(list)
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules(remove_duplicate=False):
        if name.startswith(inside):
            continue
        found[module].append(name)
        if isinstance(module, Resizing):
            inside += (f"{name}.",)
    return found


def _is_inside(name: str, layers: Collection[str]) -> bool:
    """Whether a module is a part of one of these layers, and goes with it."""
    return any(name != layer and name.startswith(f"{layer}." if layer else "") for layer in layers)


def _reasons(modules: dict[str, nn.Module], placings: dict[str, Placing | str]) -> dict[str, list[str]]:
    """What speaks against each layer that is meant."""
    against = {name: why_not(modules[name], placing) for name, placing in placings.items()}
    owners: dict[int, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].append(name)
    for name, reasons in against.items():
        others = [other for other in owners[_weight_id(modules[name])] if other != name]
        for other in others:
            if against.get(other, ["it stays"]) or _kind(modules[other]) != _kind(modules[name]):
                reasons.append(f"its weight is shared with {other!r}, which cannot share the converted one")
    return against


def _weight_id(module: nn.Module) -> int:
    """Which parameter a module's weight is; 0 if it is none."""
    weight = module._parameters.get("weight")
    return 0 if weight is None else id(weight)


def _kind(module: nn.Module) -> tuple[object, ...]:
    """Modules of one kind can share one tensor of taps."""
    return isinstance(module, _ConvNd), isinstance(module, _ConvTransposeNd), getattr(module, "groups", 1)


def _tie(modules: dict[str, nn.Module], twins: dict[str, nn.Module]) -> None:
    """Layers that shared a weight share the taps."""
    taps: dict[int, nn.Parameter] = {}
    for name, new in twins.items():
        weight = _weight_id(modules[name])
        if isinstance(new, ConvertedConv) and weight:
            new.kernel.weight = taps.setdefault(weight, new.kernel.weight)


def _entry(names: list[str], module: nn.Module, new: nn.Module | None, why: str) -> Entry:
    name, *also = names
    now = "" if new is None else type(new).__name__
    if isinstance(module, Resizing):
        why = "it is continuous already"
    return Entry(name, type(module).__name__, now, why, tuple(also))


def _replaced(model: nn.Module, names: dict[nn.Module, list[str]], twins: dict[str, nn.Module]) -> nn.Module:
    """The model with every twin in all the places of its original."""
    for all_names in names.values():
        if all_names[0] not in twins:
            continue
        new = twins[all_names[0]]
        for name in all_names:
            parent, _, child = name.rpartition(".")
            if not name:
                return new
            model.get_submodule(parent)._modules[child] = new
    return model
