"""PNG files of 16 bits per colour, which Pillow reads and writes as 8."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 4: 2, 6: 4}  # colour type -> channels; grey ones Pillow can do
COLOUR_TYPES = {count: kind for kind, count in CHANNELS.items()}


def header(path: Path) -> tuple[int, int, int, int, int] | None:
    """Width, height, depth, colour type and interlacing of a PNG file; None of another."""
    with path.open("rb") as file:
        start = file.read(33)
    if len(start) < 33 or not start.startswith(SIGNATURE) or start[12:16] != b"IHDR":
        return None
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", start[16:29])
    return width, height, depth, kind, interlaced


def is_deep(path: Path) -> bool:
    """Whether the file is a PNG of 16 bits in several channels, not interlaced."""
    found = header(path)
    return found is not None and found[2] == 16 and found[3] in CHANNELS and found[4] == 0


def read(path: Path) -> NDArray[np.uint16]:
    """[H, W, C] the numbers in the file."""
    found = header(path)
    assert found is not None
    width, height, _, kind, _ = found
    pixel = 2 * CHANNELS[kind]
    try:
        packed = b"".join(body for name, body in chunks(path.read_bytes()) if name == b"IDAT")
        lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * pixel)
    except (zlib.error, struct.error, ValueError) as error:
        raise OSError(f"broken PNG data: {error}") from error
    if lines[:, 0].max() > 4:
        raise OSError("broken PNG data: unknown filter")
    plain = unfiltered(lines[:, 1:].reshape(height, width, pixel), lines[:, 0])
    return plain.reshape(height, width, -1, 2).view(">u2")[..., 0].astype(np.uint16)


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG file: name and body."""
    place = len(SIGNATURE)
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        yield data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        place += 12 + length


def unfiltered(lines: NDArray[np.uint8], filters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[H, W, bytes] with PNG's prediction from the left, upper and upper left pixel undone.

    Each pixel needs its left and upper neighbours, so whole diagonals are done at once.
    """
    height, width, _ = lines.shape
    padded = np.zeros((height + 1, width + 1, lines.shape[2]), np.int16)
    for diagonal in range(height + width - 1):
        rows = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        columns = diagonal - rows
        left, up, corner = padded[rows + 1, columns], padded[rows, columns + 1], padded[rows, columns]
        kind = filters[rows][:, None]
        guess = np.choose(kind, [np.zeros_like(left), left, up, (left + up) // 2, paeth(left, up, corner)])
        padded[rows + 1, columns + 1] = (lines[rows, columns] + guess) & 255
    return np.ascontiguousarray(padded[1:, 1:].astype(np.uint8))


def paeth(left: NDArray[Any], up: NDArray[Any], corner: NDArray[Any]) -> NDArray[Any]:
    """Of the three neighbours the one nearest to left + up - corner, in that order of preference."""
    guess = left + up - corner
    by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    best = np.where(by_up <= by_corner, up, corner)
    return np.where((by_left <= by_up) & (by_left <= by_corner), left, best)


def write(path: Path, pixels: NDArray[np.uint16], profile: bytes | None) -> None:
    """[H, W, C] with two to four channels as a PNG of 16 bits."""
    height, width, count = pixels.shape
    raw = np.ascontiguousarray(pixels.astype(">u2")).view(np.uint8).reshape(height, -1)
    differences = np.diff(raw, axis=0, prepend=np.zeros((1, raw.shape[1]), np.uint8))  # filter 2: from above
    lines = np.concatenate([np.full((height, 1), 2, np.uint8), differences], 1)
    body = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[count], 0, 0, 0)
    parts = [SIGNATURE, chunk(b"IHDR", body)]
    if profile:
        parts.append(chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)))
    parts += [chunk(b"IDAT", zlib.compress(lines.tobytes())), chunk(b"IEND", b"")]
    path.write_bytes(b"".join(parts))


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
