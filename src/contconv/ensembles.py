"""Scale ensembles: one trained network, applied with several sequences of internal scales, its outputs put together."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from contconv.sequences import Scales, sample_scales
from contconv.size import Number, PerAxis, exact_size

LayerScales = Sequence[PerAxis]  # one for each layer, as the model takes them
REDUCTIONS = ("mean", "median")


class ScaleEnsemble(nn.Module):
    """A model applied once per sequence of scales, and the mean or the median of its outputs.

    model: any module whose forward takes `scales=`; it stays the same object, and its state dict is the ensemble's.
    sequences: what `scales=` is in each pass; None among them is the model's own default sequence.
    reduce: "mean" (logits) or "median" (images); the median of an even number is the mean of the middle two.
    """

    def __init__(self, model: nn.Module, sequences: Sequence[LayerScales | None], *, reduce: str = "mean") -> None:
        super().__init__()
        check_model(model)
        if reduce not in REDUCTIONS:
            raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
        self.model = model
        self.sequences = checked(sequences)
        self.reduce = reduce
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """The model's outputs for x over all sequences, reduced; `options` go to the model as they are."""
        outputs = []
        for sequence in self.sequences:
            outputs.append(self.model(x, scales=sequence, **options))
            check_output(outputs[-1], outputs[0], sequence)
            if self.reduce == "mean" and len(outputs) > 1:
                outputs = [outputs[0] + outputs[1]]  # one sum is kept, not all outputs
        return outputs[0] / len(self.sequences) if self.reduce == "mean" else middle(torch.stack(outputs))

    def extra_repr(self) -> str:
        return f"sequences={len(self.sequences)}, reduce={self.reduce!r}"


def ensemble(
    model: nn.Module,
    sequences: int | Sequence[LayerScales | None],
    *,
    layers: int | None = None,
    target: Number | None = None,
    seed: int = 0,
    default: bool = False,
    reduce: str = "mean",
) -> ScaleEnsemble:
    """Make an ensemble of one network with several sequences of internal scales.

    sequences: the sequences themselves, or how many `sample_scales(layers, target)` shall draw from a generator of this
    `seed`; the first k of more are the same as k of fewer. `default=True` adds the model's default sequence.

    >>> from contconv.models import CCNet
    >>> net = CCNet("spline", width=4)
    >>> ensemble(net, 3, layers=7, target=1 / 4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if isinstance(sequences, int) and not isinstance(sequences, bool):
        if layers is None or target is None:
            raise ValueError("layers and target must be given to draw sequences, for example layers=7, target=1/4")
        drawn: list[LayerScales | None] = [*draw_sequences(sequences, layers, target, seed=seed)]
    elif isinstance(sequences, Sequence) and not isinstance(sequences, str):
        drawn = list(sequences)
    else:
        raise TypeError(f"sequences must be how many to draw, or a list of sequences of scales, got {sequences!r}")
    return ScaleEnsemble(model, [None, *drawn] if default else drawn, reduce=reduce)


def draw_sequences(count: int, layers: int, target: Number, *, seed: int = 0) -> list[Scales]:
    """So many sequences of `layers` scales whose product is `target`, from one seeded generator."""
    exact_size(count, "sequences")
    generator = torch.Generator().manual_seed(seed)
    return [sample_scales(layers, target, generator=generator) for _ in range(count)]


def check_model(model: nn.Module) -> None:
    """Refuse a model that cannot be told its scales."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a module, got {type(model).__name__}")
    if not takes_scales(model):
        raise TypeError(f"model must take `scales=` in its forward; that of {type(model).__name__} does not")


def takes_scales(model: nn.Module) -> bool:
    """Whether the model's forward knows `scales=`."""
    parameters = inspect.signature(model.forward).parameters.values()
    return any(one.name == "scales" or one.kind is one.VAR_KEYWORD for one in parameters)


def checked(sequences: Sequence[LayerScales | None]) -> list[LayerScales | None]:
    """The sequences as a list, each a sequence of layers or None."""
    if len(sequences) == 0:
        raise ValueError("sequences must hold at least one sequence of scales, got none")
    for number, one in enumerate(sequences):
        if one is not None and (isinstance(one, str) or not isinstance(one, Sequence)):
            raise TypeError(
                f"sequences must be a list of sequences of scales (one entry per layer) or None; number "
                f"{number} is {one!r}"
            )
    return list(sequences)


def check_output(output: Any, first: Any, sequence: LayerScales | None) -> None:
    """Refuse outputs that cannot be put together."""
    if not isinstance(output, Tensor):
        raise TypeError(f"model must return a tensor to be part of an ensemble, got {type(output).__name__}")
    if output.shape != first.shape:
        raise ValueError(
            f"sequences must all lead to one shape; the first gives {tuple(first.shape)}, {sequence!r} gives "
            f"{tuple(output.shape)}"
        )


def middle(outputs: Tensor) -> Tensor:
    """[k, ...] -> [...]: the median over the first axis."""
    ordered = outputs.sort(0).values
    k = len(outputs)
    return (ordered[(k - 1) // 2] + ordered[k // 2]) / 2


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """The ensemble's state is the model's: `model.` is taken out of the names."""
    for name in [name for name in state if name.startswith(f"{prefix}model.")]:
        state[prefix + name.removeprefix(f"{prefix}model.")] = state.pop(name)


def _with_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}model.{name.removeprefix(prefix)}"] = state.pop(name)
