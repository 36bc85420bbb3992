"""A bar with the current loss, on a terminal; nothing elsewhere."""

from typing import Any


class Bar:
    """Counts up to `total`; silent where there is no terminal or no tqdm."""

    def __init__(self, total: int, what: str, done: int = 0, show: bool = True) -> None:
        self._bar: Any = None
        self._show = show
        if not show:
            return
        try:
            from tqdm import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return
        self._bar = tqdm(
            total=total, desc=what, initial=done, disable=None, leave=False, dynamic_ncols=True, mininterval=0.2
        )

    def step(self, loss: float | None = None) -> None:
        """One more done."""
        if self._bar is not None:
            if loss is not None:
                self._bar.set_postfix_str(f"loss {loss:.3g}", refresh=False)
            self._bar.update()

    def say(self, text: str) -> None:
        """A line that stays, above the bar."""
        if not self._show:
            return
        if self._bar is None or self._bar.disable:
            print(text, flush=True)
        else:
            self._bar.write(text)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
