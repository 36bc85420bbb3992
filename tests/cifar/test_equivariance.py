"""Shift-equivariance is what the paper says: the direction, the interpolation, the border and the cut."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contconv.cifar import equivariance
from contconv.cifar.accuracy import Outputs, outputs
from contconv.models import CCNet, ConvNet


class Pooled(nn.Module):
    """Means of 4x4 pixels: exactly equivariant to shifts by multiples of 4."""

    def responses(self, x):
        return F.avg_pool2d(x, 4)

    def head(self, features):
        return features.mean((2, 3))


def keys(d, a=-0.5):
    """Keys' cubic convolution kernel, from its two polynomials."""
    d = abs(d)
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def interpolated(image, row, column):
    """The value of a [h, w] image between its pixels, its border repeated."""
    height, width = image.shape
    total = 0.0
    for i in range(math.floor(row) - 1, math.floor(row) + 3):
        for j in range(math.floor(column) - 1, math.floor(column) + 3):
            pixel = image[min(max(i, 0), height - 1), min(max(j, 0), width - 1)].item()
            total += keys(row - i) * keys(column - j) * pixel
    return total


@pytest.mark.parametrize("shift", [(0, 0), (1, -2), (-3, 5), (6, 6), (-6, 4), (-1, 0)])
def test_shifting_back_is_keys_interpolation_at_a_quarter_of_the_shift(shift):
    maps = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    back = equivariance.shifted_back(maps, torch.tensor([shift, shift]))
    for channel, row, column in [(0, 2, 2), (1, 5, 3), (2, 0, 7), (1, 3, 5)]:
        expected = interpolated(maps[1, channel], row + shift[0] / 4, column + shift[1] / 4)
        assert back[1, channel, row, column].item() == pytest.approx(expected, abs=1e-12)


def test_every_image_is_shifted_back_by_its_own_shift():
    maps = torch.randn(5, 2, 8, 8)
    shifts = torch.tensor([[0, 0], [4, 0], [0, -4], [4, 0], [-4, 4]])
    back = equivariance.shifted_back(maps, shifts)
    for one, (down, right) in enumerate(shifts.tolist()):
        expected = maps[one].roll((-down // 4, -right // 4), (1, 2))
        torch.testing.assert_close(back[one, :, 2:6, 2:6], expected[:, 2:6, 2:6])


def test_a_window_shows_the_content_moved_down_and_right():
    canvas = torch.arange(2 * 3 * 10 * 12.0).reshape(2, 3, 10, 12)
    still = equivariance.windows(canvas, 2)
    assert torch.equal(still, canvas[:, :, 2:-2, 2:-2])
    moved = equivariance.windows(canvas, 2, torch.tensor([[1, -2], [0, 0]]))
    assert torch.equal(moved[0, :, 1:, :-2], still[0, :, :-1, 2:])
    assert torch.equal(moved[0], canvas[0, :, 1:7, 4:12])
    assert torch.equal(moved[1], still[1])


def test_without_a_shift_the_similarity_is_one_and_no_class_changes():
    model = ConvNet(width=4, hidden=8)
    seen = outputs(model, torch.randn(6, 3, 32, 32))
    found = equivariance.compared(seen, seen, torch.zeros(6, 2, dtype=torch.long))
    assert found.similarity == pytest.approx(1, abs=1e-6)
    assert found.consistency == 100


def measured(model, canvas, margin, shifts, turn=1):
    """The similarity when maps are shifted back by `turn` times what is right."""
    still = outputs(model, equivariance.windows(canvas, margin))
    moved = outputs(model, equivariance.windows(canvas, margin, shifts))
    return equivariance.compared(still, moved, turn * shifts).similarity


def test_a_perfectly_equivariant_model_is_found_to_be_one_and_the_wrong_direction_is_not():
    canvas = equivariance.canvas_of_noise(8, 3, 32, 4, seed=0)
    shifts = 4 * torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, 1], [1, -1], [-1, -1]])
    assert measured(Pooled(), canvas, 4, shifts) == pytest.approx(1, abs=1e-6)
    assert measured(Pooled(), canvas, 4, shifts, turn=-1) < 0.5
    assert measured(Pooled(), canvas, 4, shifts, turn=0) < 0.5


def test_shifts_by_parts_of_a_pixel_are_undone_exactly_where_the_map_is_a_quadratic():
    """Keys' kernel with a = -1/2 reproduces polynomials of degree two; the mean of 4x4 pixels keeps their degree."""
    place = torch.arange(40.0, dtype=torch.float64) / 10 - 1.5
    rows, columns = place[:, None], place[None, :]
    canvas = (rows**2 - 0.7 * rows * columns + 0.4 * columns**2 - columns + 0.2 * rows)[None, None].repeat(8, 1, 1, 1)
    shifts = torch.tensor([[1, 0], [0, 1], [-1, 2], [3, -2], [-3, -1], [2, 2], [4, -3], [-4, 1]])
    assert measured(Pooled(), canvas, 4, shifts) == pytest.approx(1, abs=1e-6)
    assert measured(Pooled(), canvas, 4, shifts, turn=-1) < 0.99


def test_the_continuous_network_is_measured_on_its_default_sequence():
    model = CCNet("spline", width=4, hidden=8)
    x = torch.randn(2, 3, 32, 32)
    seen = outputs(model, x)
    torch.testing.assert_close(seen.responses.relu(), model.features(x))
    assert seen.responses.min() < 0
    torch.testing.assert_close(seen.logits, model(x))


def test_two_pixels_are_cut_from_each_side_and_no_more():
    maps = torch.rand(1, 1, 8, 8) + 1
    shifts = torch.zeros(1, 2, dtype=torch.long)
    border, inside = maps.clone(), maps.clone()
    border[..., :2, :] = border[..., -2:, :] = border[..., :, :2] = border[..., :, -2:] = -100
    inside[..., 2, 5] = -100
    assert equivariance.similarities(maps, border, shifts).item() == pytest.approx(1, abs=1e-6)
    assert equivariance.similarities(maps, inside, shifts).item() < 0.5


def test_the_cosine_is_taken_per_image_and_averaged():
    ones, signs = torch.ones(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
    signs[..., :4] = -1  # orthogonal to the ones
    maps, moved = torch.cat([ones, 1000 * ones]), torch.cat([ones, signs])
    seen = [Outputs(features, torch.tensor([[1.0, 0.0], [1.0, 0.0]])) for features in (maps, moved)]
    found = equivariance.compared(*seen, torch.zeros(2, 2, dtype=torch.long))
    assert found.similarity == pytest.approx(0.5, abs=1e-6)
    assert found.error == pytest.approx(0.5, abs=1e-6)  # of 1 and 0: their deviation is 0.707, over the root of 2


def test_what_all_maps_have_in_common_is_similar_and_with_the_means_taken_off_it_is_not():
    torch.manual_seed(0)
    maps, moved = torch.randn(2, 50, 4, 8, 8)  # nothing to do with each other
    shifts, logits = torch.zeros(50, 2, dtype=torch.long), torch.eye(50)
    offset = torch.tensor([100.0, -50.0, 20.0, 70.0]).reshape(4, 1, 1)
    plain, common = (
        equivariance.compared(Outputs(maps + more, logits), Outputs(moved + more, logits), shifts)
        for more in (0, offset)
    )
    assert abs(plain.similarity) < 0.1
    assert common.similarity > 0.99
    assert common.others > 0.99
    assert abs(common.centred) < 0.1
    assert abs(plain.others) < 0.1


def test_maps_that_move_with_the_image_are_similar_with_their_means_taken_off():
    maps = torch.randn(5, 4, 8, 8) + 10
    seen = Outputs(maps, torch.eye(5))
    found = equivariance.compared(seen, seen, torch.zeros(5, 2, dtype=torch.long))
    assert found.centred == pytest.approx(1, abs=1e-5)
    assert found.others < 1


def test_consistency_counts_images_of_the_same_class():
    maps = torch.ones(4, 1, 8, 8)
    still = Outputs(maps, torch.eye(4))
    moved = Outputs(maps, torch.eye(4)[[0, 1, 2, 0]])
    assert equivariance.compared(still, moved, torch.zeros(4, 2, dtype=torch.long)).consistency == 75


def test_shifts_are_uniform_whole_pixels_and_the_same_each_time():
    shifts = equivariance.drawn_shifts(4000, 2, seed=3)
    assert torch.equal(shifts, equivariance.drawn_shifts(4000, 2, seed=3))
    assert not torch.equal(shifts, equivariance.drawn_shifts(4000, 2, seed=4))
    for axis in range(2):
        counts = shifts[:, axis].add(2).bincount()
        assert len(counts) == 5
        assert ((counts - 800).abs() < 130).all()  # five deviations
    assert abs(torch.corrcoef(shifts.double().T)[0, 1]) < 0.08


@pytest.mark.parametrize(("border", "left"), [("reflect", [2, 1]), ("zeros", [0, 0]), ("circular", [2, 3])])
def test_the_border_is_what_it_is_called(border, left):
    image = torch.arange(4.0).expand(1, 1, 4, 4)
    canvas = equivariance.canvas_of_images(image, 2, border)
    assert canvas.shape == (1, 1, 8, 8)
    assert canvas[0, 0, 4, :2].tolist() == left


def test_noise_is_real_beyond_the_border():
    canvas = equivariance.canvas_of_noise(50, 3, 32, 6, seed=1)
    assert canvas.shape == (50, 3, 44, 44)
    assert canvas.std().item() == pytest.approx(1, abs=0.02)
    assert canvas[..., :6, :].std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: equivariance.canvas_of_images(torch.ones(1, 1, 8, 8), 2, "mirror"), "border must be one of reflect"),
        (lambda: equivariance.windows(torch.ones(1, 1, 8, 8), 2, torch.tensor([[3, 0]])), "shifts must be at most"),
        (
            lambda: equivariance.similarities(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 4, 4), torch.zeros(1, 2)),
            "cut must leave something",
        ),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_similarity_is_that_of_the_layers_output_and_after_relu_another_one():
    maps = torch.randn(4, 2, 8, 8)
    moved = torch.where(maps > 0, maps, 2 * maps)  # differs where ReLU leaves nothing
    still, other = (Outputs(responses, torch.eye(4)) for responses in (maps, moved))
    found = equivariance.compared(still, other, torch.zeros(4, 2, dtype=torch.long))
    assert found.after_relu == pytest.approx(1, abs=1e-6)
    assert found.similarity < 0.99
