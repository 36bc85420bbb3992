"""Networks and layers as ONNX files of standard operations (extra [onnx])."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contconv import files
from contconv.size import exact_size

STANDARD = ("", "ai.onnx")


class _Fixed(nn.Module):
    """A model with its options settled."""

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, **self.options)


def save_onnx(path: Path | str, model: nn.Module, x: Tensor, *, dynamic_size: bool = False, **options: Any) -> None:
    """Write model(x, **options) for batches of any size, and with `dynamic_size` for images of any size as well.

    x: [N, C, *in] an example, whose size counts and whose values do not. A continuous layer's options are `scale=` and
    `size=`. The file has one input `x`, one output `y`, weights and all; it is written whole or not at all.
    """
    program = onnx_program(model, x, dynamic_size=dynamic_size, **options)
    files.write(Path(path), lambda partial: program.save(str(partial), external_data=False))


def onnx_program(model: nn.Module, x: Tensor, *, dynamic_size: bool = False, **options: Any) -> Any:
    """The `torch.onnx.ONNXProgram` of model(x, **options), or an error if standard operations cannot express it."""
    for name in ("onnx", "onnxscript"):
        if find_spec(name) is None:
            raise ImportError(f"ONNX files need {name}, which is not installed: pip install 'contconv[onnx]'")
    if model.training:
        raise ValueError("model is in training mode: export it after model.eval()")
    exact_size(x.shape[0], "the number of examples in x")
    dims = (0, *range(2, x.ndim)) if dynamic_size else (0,)
    example = x.expand(2, *x.shape[1:]) if x.shape[0] == 1 else x  # a batch of one would be taken for a constant
    program = torch.onnx.export(
        _Fixed(model, options).eval(), (example.contiguous(),), dynamo=True, verbose=False, optimize=True,
        input_names=["x"], output_names=["y"], dynamic_shapes=(dict.fromkeys(dims, torch.export.Dim.DYNAMIC),),
    )  # fmt: skip
    assert program is not None
    foreign = sorted({node.domain for node in program.model.graph} - {*STANDARD})
    if foreign:
        raise ValueError(f"model needs operations of {', '.join(foreign)}, which are not standard ONNX")
    return program
