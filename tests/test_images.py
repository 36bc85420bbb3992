"""Image files come in upright, premultiplied and in their own depth, and go out the same."""

import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from contconv import files, images
from contconv.images import deep_png


@pytest.fixture
def noise():
    return np.random.default_rng(0).integers(0, 256, (12, 17, 4), dtype=np.uint8)


def kept(tmp_path, image, suffix=".png", **options):
    path = tmp_path / f"image{suffix}"
    image.save(path, **options)
    return path


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4), ("CMYK", 3)])
def test_channels_are_what_the_picture_has(tmp_path, noise, mode, channels):
    path = kept(tmp_path, Image.fromarray(noise).convert(mode), ".tif")
    picture = images.read(path)
    assert picture.pixels.shape == (channels, 12, 17)
    assert picture.depth == 8


def test_opaque_pixels_survive_unchanged(tmp_path, noise):
    path = kept(tmp_path, Image.fromarray(noise[..., :3]))
    images.write(tmp_path / "again.png", images.read(path))
    assert np.array_equal(np.array(Image.open(tmp_path / "again.png")), noise[..., :3])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, noise, orientation):
    image = Image.fromarray(noise[..., :3])
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = kept(tmp_path, image, exif=exif)
    turns = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a),
    }
    upright = torch.from_numpy(turns[orientation](noise[..., :3]).copy()).movedim(-1, 0) / 255
    torch.testing.assert_close(images.read(path).pixels, upright.double(), rtol=0, atol=1e-7)


def test_alpha_is_premultiplied_and_divided_out_again(tmp_path, noise):
    picture = images.read(kept(tmp_path, Image.fromarray(noise)))
    colours, alpha = noise[..., :3] / 255, noise[..., 3:] / 255
    expected = torch.from_numpy(np.concatenate([colours * alpha, alpha], -1)).movedim(-1, 0)
    torch.testing.assert_close(picture.pixels, expected, rtol=0, atol=1e-12)
    images.write(tmp_path / "again.png", picture)
    again = np.array(Image.open(tmp_path / "again.png"))
    assert np.array_equal(again[..., 3], noise[..., 3])
    seen = noise[..., 3] > 0
    assert np.array_equal(again[seen], noise[seen])


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_stay_sixteen_bits(tmp_path, suffix):
    deep = np.random.default_rng(1).integers(0, 65536, (9, 7), dtype=np.uint16)
    picture = images.read(kept(tmp_path, Image.fromarray(deep), suffix))
    assert picture.depth == 16
    images.write(tmp_path / f"again{suffix}", picture)
    again = Image.open(tmp_path / f"again{suffix}")
    assert again.mode.startswith("I;16")
    assert np.array_equal(np.array(again), deep)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_colours_of_sixteen_bits_stay_so(tmp_path, channels):
    deep = np.random.default_rng(2).integers(1, 65536, (11, 8, channels), dtype=np.uint16)
    deep_png.write(tmp_path / "deep.png", deep, None)
    shallow = np.array(Image.open(tmp_path / "deep.png"))  # Pillow agrees on the upper eight bits
    if channels != 2:
        assert np.abs(shallow.astype(int) - deep // 256).max() <= 1
    picture = images.read(tmp_path / "deep.png")
    assert (picture.depth, picture.pixels.shape) == (16, (channels, 11, 8))
    images.write(tmp_path / "again.png", picture)
    assert np.array_equal(deep_png.read(tmp_path / "again.png"), deep)
    with pytest.raises(images.ImageError, match=r"only be written as \.png"):
        images.write(tmp_path / "again.tif", picture)


def test_integers_beyond_sixteen_bits_keep_their_range(tmp_path):
    values = np.array([[-5, 70000], [3, 10**6]], np.int32)
    picture = images.read(kept(tmp_path, Image.fromarray(values), ".tif"))
    assert picture.depth == 32
    assert np.array_equal(picture.pixels[0].numpy(), values)


def test_sixteen_bits_that_would_be_lost_are_refused(tmp_path):
    deep_png.write(tmp_path / "deep.png", np.zeros((4, 5, 3), np.uint16), None)
    data = bytearray((tmp_path / "deep.png").read_bytes())
    data[28] = 1  # interlaced, says the header
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    (tmp_path / "laced.png").write_bytes(data)
    with pytest.raises(images.ImageError, match="laced"):
        images.read(tmp_path / "laced.png")


@pytest.mark.parametrize("kind", range(5))
def test_every_prediction_of_png_is_undone(kind):
    plain = np.random.default_rng(kind).integers(0, 256, (7, 9, 6)).astype(np.int64)
    filtered = np.zeros_like(plain)
    for y in range(7):
        for x in range(9):
            left = plain[y, x - 1] if x else np.zeros(6, int)
            up = plain[y - 1, x] if y else np.zeros(6, int)
            corner = plain[y - 1, x - 1] if x and y else np.zeros(6, int)
            nearest = [
                min((a, b, c), key=lambda v, p=a + b - c: abs(p - v)) for a, b, c in zip(left, up, corner, strict=True)
            ]
            guess = [np.zeros(6, int), left, up, (left + up) // 2, np.array(nearest)][kind]
            filtered[y, x] = (plain[y, x] - guess) % 256
    undone = deep_png.unfiltered(filtered.astype(np.uint8), np.full(7, kind, np.uint8))
    assert np.array_equal(undone, plain)


def test_a_palette_becomes_its_colours(tmp_path, noise):
    image = Image.fromarray(noise[..., :3]).quantize(16)
    picture = images.read(kept(tmp_path, image))
    expected = torch.from_numpy(np.array(image.convert("RGB"))).movedim(-1, 0) / 255
    torch.testing.assert_close(picture.pixels, expected.double(), rtol=0, atol=1e-7)


def test_a_see_through_palette_entry_becomes_alpha(tmp_path, noise):
    image = Image.fromarray(noise[..., :3]).quantize(4)
    picture = images.read(kept(tmp_path, image, transparency=2))
    assert picture.pixels.shape[0] == 4
    assert np.array_equal(picture.pixels[3].numpy() == 0, np.array(image) == 2)


def test_floating_point_greys_keep_their_range(tmp_path):
    values = np.linspace(-3, 500, 24, dtype=np.float32).reshape(4, 6)
    picture = images.read(kept(tmp_path, Image.fromarray(values), ".tif"))
    images.write(tmp_path / "again.tif", picture)
    assert np.array_equal(np.array(Image.open(tmp_path / "again.tif")), values)


def test_a_colour_profile_is_kept(tmp_path, noise):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    path = kept(tmp_path, Image.fromarray(noise[..., :3]), icc_profile=profile)
    images.write(tmp_path / "again.png", images.read(path))
    assert Image.open(tmp_path / "again.png").info["icc_profile"] == profile


def test_bad_files_are_named(tmp_path, noise):
    (tmp_path / "text.png").write_text("not a picture")
    whole = kept(tmp_path, Image.fromarray(noise)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.png").write_bytes(b"")
    for name, reason in [
        ("text.png", "not an image"),
        ("cut.png", "cannot be read as an image"),
        ("empty.png", "not an image"),
        ("missing.png", "no such file"),
        (".", "is a folder"),
    ]:
        with pytest.raises(images.ImageError, match=reason):
            images.read(tmp_path / name)


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    with pytest.raises(images.ImageError, match="JPEG has no transparency"):
        images.write(tmp_path / "a.jpg", images.Picture(torch.zeros(4, 3, 3)))
    with pytest.raises(images.ImageError, match="JPEG cannot hold 16-bit"):
        images.write(tmp_path / "a.jpg", images.Picture(torch.zeros(1, 3, 3), depth=16))
    with pytest.raises(images.ImageError, match="unknown image format"):
        images.write(tmp_path / "a.nonsense", images.Picture(torch.zeros(1, 3, 3)))
    assert not list(tmp_path.iterdir())


def test_a_file_that_fails_half_way_leaves_the_old_one_and_no_rest(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def fail(partial):
        partial.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
