"""Reading the official files, what damaged ones are told, and fetching them."""

import hashlib
import io
import tarfile

import pytest
import torch
from synthetic import write

from contconv.cifar.data import FILES, FOLDER, PER_FILE, RECORD, read
from contconv.cifar.download import MD5, URL, download

NAMES = [name for names in FILES.values() for name in names]


def test_a_record_is_a_label_and_three_planes(tmp_path):
    write(tmp_path, per_file=2)
    record = bytes([7]) + bytes([1] * 1024) + bytes([2] * 1024) + bytes(i % 256 for i in range(1024))
    (tmp_path / "data_batch_2.bin").write_bytes(record * 2)
    images = read(tmp_path, "train", per_file=2)
    assert images.pixels.shape == (10, 3, 32, 32)
    assert images.pixels.dtype == torch.uint8
    assert images.pixels.is_contiguous(memory_format=torch.channels_last)
    assert images.labels.shape == (10,)
    assert images.labels[2] == images.labels[3] == 7
    assert (images.pixels[2, 0] == 1).all()
    assert (images.pixels[2, 1] == 2).all()
    assert images.pixels[2, 2, 3, 5] == 3 * 32 + 5


def test_files_come_in_their_order_and_the_test_file_is_apart(tmp_path):
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(bytes([number]) + bytes(3072))
    assert read(tmp_path, "train", per_file=1).labels.tolist() == [0, 1, 2, 3, 4]
    assert read(tmp_path, "test", per_file=1).labels.tolist() == [5]


def test_the_folder_above_will_do(tmp_path):
    write(tmp_path / "cifar-10-batches-bin", per_file=1)
    assert len(read(tmp_path, "test", per_file=1)) == 1


def test_missing_files_are_named_with_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_batch_1.bin, .*test_batch.bin missing .*--download"):
        read(tmp_path / "nowhere", "train")
    write(tmp_path, per_file=1)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r": data_batch_3.bin missing from .*unpack cifar-10-binary.tar.gz"):
        read(tmp_path, "train", per_file=1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"wrong number of images: 0 bytes .*delete it and get it again"),
        (bytes(2 * RECORD - 1), r"cut short or damaged: 6145 bytes are 1 images and 3072 bytes; delete it"),
        (bytes(3 * RECORD), r"wrong number of images: 9219 bytes are 3 images"),
        (bytes(RECORD) + bytes([10]) + bytes(RECORD - 1), r"damaged: image 1 has label 10, not 0 to 9; delete it"),
    ],
)
def test_damaged_files_are_named_with_what_to_do(tmp_path, content, reason):
    write(tmp_path, per_file=2)
    (tmp_path / "data_batch_4.bin").write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_4.bin.*{reason}"):
        read(tmp_path, "train", per_file=2)


def test_the_official_files_have_ten_thousand_images_each(tmp_path):
    write(tmp_path, per_file=1)
    for name in NAMES:
        with (tmp_path / name).open("wb") as file:
            file.truncate(10_000 * 3073)
    assert PER_FILE == 10_000
    assert len(read(tmp_path, "test")) == 10_000
    with (tmp_path / "test_batch.bin").open("wb") as file:
        file.truncate(9_999 * 3073)
    with pytest.raises(ValueError, match="9999 images"):
        read(tmp_path, "test")


def test_a_split_is_train_or_test(tmp_path):
    with pytest.raises(ValueError, match="split must be one of train, test, got 'validation'"):
        read(tmp_path, "validation")


def archive(tmp_path, *, extra: str | None = None) -> tuple[str, str]:
    """An archive as the official one is, its address and its checksum."""
    source = tmp_path / "source"
    write(source, per_file=1)
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in NAMES:
            tar.add(source / name, f"{FOLDER}/{name}")
        if extra is not None:
            member = tarfile.TarInfo(extra)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
    return path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest()


def test_download_fetches_checks_and_unpacks(tmp_path):
    url, md5 = archive(tmp_path)
    place = download(tmp_path / "data", url=url, md5=md5)
    assert sorted(path.name for path in place.iterdir()) == sorted(NAMES)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FOLDER]
    for name in NAMES:
        assert (place / name).read_bytes() == (tmp_path / "source" / name).read_bytes()


def test_download_does_nothing_where_the_files_are(tmp_path):
    write(tmp_path, per_file=1)
    assert download(tmp_path, url="file:///nowhere") == tmp_path


def test_download_completes_a_folder_with_some_of_the_files(tmp_path):
    url, md5 = archive(tmp_path)
    write(tmp_path / "data" / FOLDER, per_file=1)
    (tmp_path / "data" / FOLDER / "data_batch_5.bin").unlink()
    download(tmp_path / "data", url=url, md5=md5)
    assert len(read(tmp_path / "data", "train", per_file=1)) == 5


def test_a_wrong_archive_leaves_nothing(tmp_path):
    url, _ = archive(tmp_path)
    with pytest.raises(ValueError, match=r"its MD5 is \w+, expected c32a1d4ab5d03f1284b67883e8d87530"):
        download(tmp_path / "data", url=url)
    assert list((tmp_path / "data").iterdir()) == []
    with pytest.raises(OSError, match=r"cannot download file:.*unpack it into the data folder"):
        download(tmp_path / "data", url=(tmp_path / "nothing").as_uri())
    assert list((tmp_path / "data").iterdir()) == []


def test_only_the_data_files_are_taken_from_an_archive(tmp_path):
    for extra in ("../evil", f"{FOLDER}/../../evil", f"{FOLDER}/evil"):
        url, md5 = archive(tmp_path, extra=extra)
        place = download(tmp_path / f"data-{len(extra)}", url=url, md5=md5)
        assert sorted(path.name for path in place.iterdir()) == sorted(NAMES)
    assert not list(tmp_path.rglob("evil"))


def test_the_address_is_the_official_one():
    assert URL.endswith("/cifar-10-binary.tar.gz")
    assert len(MD5) == 32
