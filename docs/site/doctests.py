"""For mkdocstrings: the doctests of a docstring are blocks of code, and not quotations of quotations."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .+(?:\n.+)*", flags=re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around every doctest, from its first prompt to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
