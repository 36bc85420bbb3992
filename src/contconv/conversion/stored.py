"""Converted models in safetensors files: the weights, and in the header which layers were converted and how."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from contconv import files
from contconv._version import __version__
from contconv.conversion.whole_model import conversion_report, convert

COUNTER = "num_batches_tracked"  # that old files do not have, and evaluation does not need


def save_converted(model: nn.Module, path: Path | str) -> None:
    """Write the weights of a model that `contconv.convert` returned, for `load_converted`."""
    from safetensors.torch import save_model

    report = conversion_report(model)
    said = json.dumps({"replaced": report.replaced, "kernel": report.kernel, "version": __version__})
    files.write(Path(path), partial(save_model, model, metadata={"contconv": said, "format": "pt"}))


def load_converted(model: nn.Module, path: Path | str) -> nn.Module:
    """Convert a model, fresh from its factory, as the file says, and fill it with the file's weights."""
    from safetensors import safe_open
    from safetensors.torch import load_model

    with safe_open(path, framework="pt") as stored:
        header = (stored.metadata() or {}).get("contconv")
    if header is None:
        raise ValueError(f"path: {path} was not written by contconv.save_converted")
    said = json.loads(header)
    converted = convert(model, said["replaced"], kernel=said["kernel"])
    load_model(converted, path)
    return converted


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Fill a model as it was made by its factory with the weights of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"weights: {path} is not a safetensors file: {error}") from error
    fill(model, weights, str(path))


def fill(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """`load_state_dict` that says in one line what does not fit, and does not miss counters."""
    own = model.state_dict()
    missing = [name for name in own if name not in weights and not name.endswith(COUNTER)]
    unknown = [name for name in weights if name not in own]
    misshapen = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    for what, names in (("lacks", missing), ("has unknown", unknown), ("has other shapes of", misshapen)):
        if names:
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise ValueError(f"weights: {source} does not fit {type(model).__name__}: it {what} {shown}")
    model.load_state_dict(dict(weights), strict=False)
