"""A run's course as two CSV files, steps and epochs, and for TensorBoard if wished."""

import csv
import io
from pathlib import Path
from typing import Any

from contconv import files

STEPS, EPOCHS = "steps.csv", "epochs.csv"
COLUMNS = {
    STEPS: ("step", "epoch", "learning_rate", "loss", "accuracy"),
    EPOCHS: ("epoch", "loss", "accuracy", "test_accuracy", "seconds", "test_seconds"),
}
Row = dict[str, float | int | None]


class Log:
    """Appends rows; opened again, it forgets those that come after the point the run goes on from."""

    def __init__(self, folder: Path, *, step: int, epoch: int, tensorboard: bool = False) -> None:
        self.folder = folder
        for name, last in ((STEPS, step), (EPOCHS, epoch)):
            kept = [row for row in rows(folder / name) if int(row[COLUMNS[name][0]]) <= last]
            files.write_text(folder / name, _text(name, kept, header=True))
        self._writer = _tensorboard(folder, step) if tensorboard else None

    def step(self, row: Row) -> None:
        """The means since the row before."""
        self._append(STEPS, row)
        self._draw("step", row, int(row["step"] or 0))

    def epoch(self, row: Row) -> None:
        """The means over an epoch."""
        self._append(EPOCHS, row)
        self._draw("epoch", row, int(row["epoch"] or 0))

    def close(self) -> None:
        """Write out what TensorBoard keeps back."""
        if self._writer is not None:
            self._writer.close()

    def _append(self, name: str, row: Row) -> None:
        with (self.folder / name).open("a", encoding="utf-8", newline="") as file:
            file.write(_text(name, [row], header=False))

    def _draw(self, group: str, row: Row, at: int) -> None:
        if self._writer is not None:
            for name, value in row.items():
                if value is not None and name not in ("step", "epoch"):
                    self._writer.add_scalar(f"{group}/{name}", value, at)


def rows(path: Path) -> list[dict[str, str]]:
    """The whole rows of a CSV file, none if there is no file; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return list(csv.DictReader(line for line in lines if line.endswith("\n")))


def _text(name: str, content: list[Any], *, header: bool) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS[name], lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(content)
    return out.getvalue()


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("tensorboard=True needs the package tensorboard: pip install tensorboard") from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
