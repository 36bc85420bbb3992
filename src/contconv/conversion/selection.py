"""Which layers of a model are meant: "strided", "all", names, types, a predicate, or a list of such."""

import difflib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

from contconv.conversion.making import POOLS, UPSAMPLES, is_candidate, is_resizing

Predicate = Callable[[str, nn.Module], bool]
Layers = str | type[nn.Module] | Predicate | Iterable["str | type[nn.Module]"]
KEYWORDS = ("strided", "all")


def selected(modules: dict[str, nn.Module], layers: Layers) -> dict[str, str]:
    """Why each module is meant, for those that are: name -> "named", or the words of the selection."""
    if isinstance(layers, (str, type)):
        return _by_item(modules, layers)
    if callable(layers):
        return {name: "predicate" for name, module in modules.items() if is_candidate(module) and layers(name, module)}
    meant: dict[str, str] = {}
    for item in layers:
        meant |= _by_item(modules, item)
    return meant


def _by_item(modules: dict[str, nn.Module], item: object) -> dict[str, str]:
    if isinstance(item, type) and issubclass(item, nn.Module):
        return {name: item.__name__ for name, module in modules.items() if isinstance(module, item)}
    if not isinstance(item, str):
        raise TypeError(f"layers must be of strings and types, or a predicate(name, module), got {item!r}")
    if item in KEYWORDS:
        return {name: item for name, module in modules.items() if _is_meant(module, item)}
    found = {name: "named" for name in modules if name == item or fnmatchcase(name, item)}
    if not found:
        near = difflib.get_close_matches(item, modules, n=3) or [*KEYWORDS]
        raise ValueError(f"layers: the model has no module {item!r}; did you mean {' or '.join(map(repr, near))}?")
    if "*" in item:  # a pattern may well match other things than layers
        return {name: item for name in found if is_candidate(modules[name])}
    return found


def _is_meant(module: nn.Module, keyword: str) -> bool:
    """ "all" are all convolutions, and the poolings and upsamplings that change the size; "strided" only the latter."""
    if not is_candidate(module):
        return False
    return is_resizing(module) or (keyword == "all" and not isinstance(module, (*POOLS, *UPSAMPLES)))
