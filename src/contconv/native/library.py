"""Loading the native kernel, and the layout of what it is handed.

The structures here mirror `cpp/problem.h`. The environment variable `CONTCONV_LIBRARY` names another build of the
library (one with sanitizers, say); `CONTCONV_ISA` (`portable`, `avx2`, `avx512`) limits the instruction set.
"""

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch  # before the library is loaded, which shares the OpenMP runtime (and so the threads) of torch

ThreeSizes = ctypes.c_int64 * 3
ThreePointers = ctypes.c_void_p * 3
MOST_LAYERS = 8


class Problem(ctypes.Structure):
    """`ContconvProblem`."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("in_channels", ctypes.c_int64),
        ("out_channels", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("in_size", ThreeSizes),
        ("out_size", ThreeSizes),
        ("taps", ThreeSizes),
        ("phases", ThreeSizes),
        ("tables", ThreePointers),
        ("per_tap", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )


class Net(ctypes.Structure):
    """`ContconvNet`."""

    _fields_ = (
        ("points", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("widths", ctypes.c_int64 * (MOST_LAYERS + 1)),
        ("weight", ctypes.c_void_p * MOST_LAYERS),
        ("bias", ctypes.c_void_p * MOST_LAYERS),
        ("slope", ctypes.c_float),
    )


class NetGradients(ctypes.Structure):
    """`ContconvNetGradients`."""

    _fields_ = tuple((name, ctypes.c_void_p * MOST_LAYERS) for name in ("weight", "bias"))


class Inputs(ctypes.Structure):
    """`ContconvInputs`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "grad_y", "weights", "mixing", "bias")),
        ("net", ctypes.POINTER(Net)),
        ("offset", ThreePointers),
    )


class Gradients(ctypes.Structure):
    """`ContconvGradients`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "weights", "mixing")),
        ("net", ctypes.POINTER(NetGradients)),
        ("bias", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL | str:
    """The loaded library, or the reason why there is none."""
    path = _path()
    if path is None:
        return "it was not built: no C++ compiler was found when contconv was installed"
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.contconv_isa.argtypes = []
        loaded.contconv_isa.restype = ctypes.c_char_p
        loaded.contconv_limit_isa.argtypes = [ctypes.c_char_p]
        loaded.contconv_limit_isa.restype = ctypes.c_char_p
        loaded.contconv_ask_for_large_pages.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        loaded.contconv_ask_for_large_pages.restype = None
        for name in ("contconv_forward", "contconv_backward"):
            function = getattr(loaded, name)
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
            function.restype = ctypes.c_int
        for name, count in (("contconv_net_forward", 3), ("contconv_net_backward", 4)):
            function = getattr(loaded, name)
            function.argtypes = [ctypes.c_void_p] * count
            function.restype = ctypes.c_int
    except (OSError, AttributeError) as error:
        return f"it could not be loaded: {error}"
    return loaded


def _path() -> Path | None:
    chosen = os.environ.get("CONTCONV_LIBRARY")
    if chosen:
        return Path(chosen)
    here = Path(__file__).parent
    return next((here / f"_kernel{end}" for end in EXTENSION_SUFFIXES if (here / f"_kernel{end}").exists()), None)


def available() -> bool:
    """Whether the native kernel can be used."""
    return not isinstance(library(), str)


def status() -> str:
    """One sentence: the instruction set and the number of threads of the native kernel, or why there is none."""
    loaded = library()
    if isinstance(loaded, str):
        return f"The native CPU kernel is not available: {loaded}."
    return f"The native CPU kernel is available and uses {isa()} on {torch.get_num_threads()} thread(s)."


def isa() -> str:
    """The instruction set in use."""
    return _loaded().contconv_isa().decode()


def lanes() -> int:
    """Floats in a vector of the instruction set in use; of the least one where there is no library."""
    return {"avx512": 16, "avx2": 8}.get(isa() if available() else "portable", 4)


def limit_isa(limit: str | None) -> str:
    """Limits the instruction set (None: the best there is) from now on, and returns the one in use then."""
    return _loaded().contconv_limit_isa(None if limit is None else limit.encode()).decode()


def _loaded() -> ctypes.CDLL:
    loaded = library()
    if isinstance(loaded, str):
        raise RuntimeError(status())
    return loaded


_ERRORS = {
    1: (ValueError, "a table names a phase that the weights do not have, or an input pixel outside of the input"),
    2: (MemoryError, "no memory for the native kernel's scratch"),
}


def ask_for_large_pages(address: int, count: int) -> None:
    """Asks the system for large pages under so many bytes, which are about to be written."""
    _loaded().contconv_ask_for_large_pages(address, count)


def forward(problem: Problem, inputs: Inputs, y: int, algorithm: int) -> None:
    """y (an address) = the convolution."""
    _raise_for(_loaded().contconv_forward(ctypes.byref(problem), ctypes.byref(inputs), y, algorithm))


def backward(problem: Problem, inputs: Inputs, gradients: Gradients, algorithm: int) -> None:
    """The gradients whose addresses are not None."""
    to = ctypes.byref(gradients)
    _raise_for(_loaded().contconv_backward(ctypes.byref(problem), ctypes.byref(inputs), to, algorithm))


def net_forward(net: Net, points: int, y: int) -> None:
    """y (an address) = the units of the net at the points."""
    _raise_for(_loaded().contconv_net_forward(ctypes.byref(net), points, y))


def net_backward(net: Net, points: int, grad_y: int, gradients: NetGradients) -> None:
    """The gradients of all weights and biases."""
    _raise_for(_loaded().contconv_net_backward(ctypes.byref(net), points, grad_y, ctypes.byref(gradients)))


def _raise_for(code: int) -> None:
    if code != 0:
        error, message = _ERRORS[code]
        raise error(message)
