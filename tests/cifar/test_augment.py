"""Crops, flips and normalisation against plain loops."""

import pytest
import torch

from contconv.cifar.augment import MEAN, STD, Draws, augmented, cropped, draws, normalized


def one_by_hand(image, top, left, flip):
    """[3, H, W] bytes -> the crop, pixel by pixel."""
    _, height, width = image.shape
    out = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            row, column = y + top - 4, (width - 1 - x if flip else x) + left - 4
            if 0 <= row < height and 0 <= column < width:
                out[:, y, x] = image[:, row, column]
    return out


def test_crops_and_flips_are_those_of_plain_loops():
    pixels = torch.randint(1, 256, (6, 3, 10, 12), dtype=torch.uint8)
    top, left = torch.tensor([0, 4, 8, 3, 4, 8]), torch.tensor([8, 4, 0, 5, 4, 1])
    flip = torch.tensor([False, False, True, True, True, False])
    out = cropped(pixels, Draws(top, left, flip))
    for i in range(6):
        assert torch.equal(out[i], one_by_hand(pixels[i], int(top[i]), int(left[i]), bool(flip[i])))
    assert torch.equal(out[1], pixels[1])
    assert torch.equal(out[4], pixels[4].flip(-1))


def test_all_crops_and_both_flips_are_drawn_equally_often():
    drawn = draws(81 * 400, torch.Generator().manual_seed(0))
    counts = torch.bincount(drawn.top * 9 + drawn.left, minlength=81)
    assert len(counts) == 81
    assert counts.min() > 300  # the mean is 400, its deviation 20
    assert counts.max() < 500
    assert drawn.flip.double().mean().item() == pytest.approx(0.5, abs=0.02)


def test_the_generator_alone_decides():
    first, again, other = (draws(50, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.top, other.top)


def test_a_part_of_the_batch_gets_its_part_of_the_draws():
    pixels = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
    drawn = draws(8, torch.Generator().manual_seed(0))
    part = slice(4, 8)
    assert torch.equal(augmented(pixels, drawn)[part], augmented(pixels[part], drawn.part(part)))


def test_normalised_images_are_float_channels_last_and_inverted_by_hand():
    pixels = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    x = normalized(pixels)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    assert torch.allclose(x * std + mean, pixels / 255, atol=1e-6)
    trained = augmented(pixels, draws(4, torch.Generator().manual_seed(0)))
    assert trained.is_contiguous(memory_format=torch.channels_last)


def test_the_padding_is_black_before_it_is_normalised():
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    corner = augmented(white, Draws(torch.tensor([0]), torch.tensor([0]), torch.tensor([False])))[0, :, 0, 0]
    assert torch.allclose(corner, -torch.tensor(MEAN) / torch.tensor(STD))
