"""A bar with the current loss, on a terminal; nothing elsewhere."""

from typing import Any


class Bar:
    """Counts up to `total`; silent where there is no terminal or no tqdm."""

    def __init__(self, total: int, what: str) -> None:
        self._bar: Any = None
        try:
            from tqdm import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return
        self._bar = tqdm(total=total, desc=what, disable=None, leave=False, dynamic_ncols=True, mininterval=0.2)

    def step(self, loss: float | None = None) -> None:
        """One more done."""
        if self._bar is not None:
            if loss is not None:
                self._bar.set_postfix_str(f"loss {loss:.3g}", refresh=False)
            self._bar.update()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
