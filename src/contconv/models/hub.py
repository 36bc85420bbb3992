"""The networks with `save_pretrained` and `from_pretrained`. Needs huggingface_hub: pip install 'contconv[hub]'."""

from typing import Any

from torch import nn


def with_hub(model: type[nn.Module]) -> type[Any]:
    """A subclass of the network that saves itself and its arguments to a folder, and loads from one or from the hub.

    The arguments must be what JSON can hold: a kernel by its name.

        net = with_hub(CCNet)("spline", width=16)
        net.save_pretrained("folder")
        net = with_hub(CCNet).from_pretrained("folder")
    """
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ImportError as error:
        raise ImportError("with_hub needs huggingface_hub: pip install 'contconv[hub]'") from error

    class OnHub(model, PyTorchModelHubMixin, library_name="contconv"):  # type: ignore[misc, valid-type]
        __doc__ = model.__doc__

    OnHub.__name__ = OnHub.__qualname__ = model.__name__
    return OnHub
