"""The official archive of CIFAR-10, fetched when asked, checked, and unpacked whole or not at all."""

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from contconv.cifar.data import FILES, FOLDER, found

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
SECONDS = 60  # without a byte


def download(folder: Path, *, url: str = URL, md5: str = MD5) -> Path:
    """Where the files are: as `found`, after fetching them into `folder` if they are not there."""
    try:
        return found(folder)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download.") as temporary:
        archive = Path(temporary) / "archive.tar.gz"
        _fetch(url, archive, md5)
        unpacked = Path(temporary) / FOLDER
        _unpack(archive, unpacked)
        _put(unpacked, folder / FOLDER)
    return found(folder)


def _fetch(url: str, path: Path, md5: str) -> None:
    """The file at `url`, if it is the one that it should be."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as source, path.open("wb") as file:
            while block := source.read(1 << 20):
                digest.update(block)
                file.write(block)
    except OSError as error:
        raise OSError(f"cannot download {url}: {error}; get it elsewhere and unpack it into the data folder") from error
    if digest.hexdigest() != md5:
        raise ValueError(f"{url} is not what it should be: its MD5 is {digest.hexdigest()}, expected {md5}; try again")


def _unpack(archive: Path, place: Path) -> None:
    """The data files out of the archive, by name, and nothing else that it may hold."""
    place.mkdir()
    wanted = {f"{FOLDER}/{name}" for names in FILES.values() for name in names}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.name.removeprefix("./") in wanted and member.isfile():
                source = tar.extractfile(member)
                assert source is not None
                with source, (place / Path(member.name).name).open("wb") as file:
                    shutil.copyfileobj(source, file)
    place.chmod(0o755)


def _put(unpacked: Path, place: Path) -> None:
    """Move a folder to its place; files that were there are replaced one by one, each whole."""
    if not place.exists():
        try:
            unpacked.rename(place)
            return
        except OSError:
            if not place.exists():
                raise
    for file in unpacked.iterdir():
        os.replace(file, place / file.name)
