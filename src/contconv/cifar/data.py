"""CIFAR-10 in its official binary layout, whole in memory as bytes."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

SIZE = 32
CHANNELS = 3
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + CHANNELS * SIZE * SIZE  # a label, then the red, the green and the blue plane
PER_FILE = 10_000
FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
FOLDER = "cifar-10-batches-bin"  # what the official archive holds


@dataclass(frozen=True)
class Images:
    """Pictures and what they show."""

    pixels: Tensor  # [N, 3, 32, 32] uint8, channels_last
    labels: Tensor  # [N] int64

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> "Images":
        """The first `count` of them."""
        if not 1 <= count <= len(self):
            raise ValueError(f"images must be between 1 and {len(self)}, got {count}")
        return Images(self.pixels[:count], self.labels[:count])

    def to(self, device: torch.device) -> "Images":
        """The same on a device."""
        return Images(self.pixels.to(device), self.labels.to(device))


def read(folder: Path, split: str, *, per_file: int = PER_FILE) -> Images:
    """The "train" or the "test" images of the folder with the official files, or of the one above it.

    `per_file` is how many images each file must hold.
    """
    if split not in FILES:
        raise ValueError(f"split must be one of {', '.join(FILES)}, got {split!r}")
    place = found(folder)
    records = torch.cat([_records(place / name, per_file) for name in FILES[split]])  # [N, RECORD]
    planes = records[:, 1:].reshape(-1, CHANNELS, SIZE, SIZE)
    return Images(planes.contiguous(memory_format=torch.channels_last), records[:, 0].long())


def found(folder: Path) -> Path:
    """Where the six files are; if some are missing, an error that says what to do."""
    names = [name for names in FILES.values() for name in names]
    places = [folder / FOLDER, folder]
    missing = {place: [name for name in names if not (place / name).is_file()] for place in places}
    for place in places:
        if not missing[place]:
            return place
    best = min(places, key=lambda place: len(missing[place]))
    raise FileNotFoundError(
        f"CIFAR-10 is not in {folder}: {', '.join(missing[best])} missing from {best}; unpack cifar-10-binary.tar.gz "
        f"there, or let --download fetch it (170 MB)"
    )


def _records(path: Path, count: int) -> Tensor:
    """[count, RECORD] bytes of one file."""
    size = path.stat().st_size
    again = f"delete it and get it again, for example with --download ({count} images of {RECORD} bytes are wanted)"
    if size != count * RECORD:
        whole, rest = divmod(size, RECORD)
        kind = "is cut short or damaged" if rest else "has a wrong number of images"
        raise ValueError(f"{path} {kind}: {size} bytes are {whole} images and {rest} bytes; {again}")
    records = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(count, RECORD)
    wrong = (records[:, 0] >= len(CLASSES)).nonzero()
    if len(wrong):
        where = int(wrong[0])
        raise ValueError(f"{path} is damaged: image {where} has label {int(records[where, 0])}, not 0 to 9; {again}")
    return records
