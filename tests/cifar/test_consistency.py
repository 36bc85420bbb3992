"""Training for equivariance: what is compared, and that it can be learned."""

import pytest
import torch
from synthetic import TINY, images, run

import contconv
from contconv.cifar import augment
from contconv.cifar.accuracy import Outputs
from contconv.cifar.consistency import (
    IMAGES,
    LARGEST,
    NOISE,
    WithResponses,
    disagreement,
    inconsistency,
    pairs,
    part_of,
)
from contconv.cifar.equivariance import compared, drawn_shifts, windows
from contconv.models.networks import Network, build, load_weights


def of_pairs(count, seed):
    return pairs(count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(8))
def test_the_second_crop_is_the_first_one_moved_by_the_shift(seed):
    two = of_pairs(40, seed)
    pixels = torch.randint(1, 256, (40, 3, 32, 32), dtype=torch.uint8)
    first, second = augment.cropped(pixels, two.first), augment.cropped(pixels, two.second)
    down, right = two.shift.tolist()
    seen = (slice(None), slice(None), slice(max(down, 0), 32 + min(down, 0)), slice(max(right, 0), 32 + min(right, 0)))
    moved = first.roll((down, right), (2, 3))
    assert torch.equal(moved[seen], second[seen])
    assert two.first.flip.any()
    assert not two.first.flip.all()


def test_crops_are_those_that_are_drawn_without_pairs():
    corners = [torch.stack([d.top, d.left]) for seed in range(200) for d in of_pairs(32, seed)[:2]]
    both = torch.cat(corners, dim=1)
    assert both.min() == 0
    assert both.max() == 2 * augment.PADDING
    shifts = torch.stack([of_pairs(1, seed).shift for seed in range(2000)])
    assert set(shifts.flatten().tolist()) == set(range(-LARGEST, LARGEST + 1))


def test_maps_that_move_with_the_image_are_consistent_and_others_are_not():
    """A "network" that takes every fourth of smooth images is equivariant but for interpolation."""
    wave = torch.arange(60.0) / 16 + torch.arange(6.0)[:, None]  # another one for each image
    canvas = (torch.sin(wave)[:, :, None] + torch.cos(1.3 * wave)[:, None])[:, None]
    shift = torch.tensor([3, -5])
    maps = [windows(canvas, 14, shifts)[..., ::4, ::4] for shifts in (None, shift.expand(6, 2))]
    assert inconsistency(torch.cat(maps), shift) < 5e-3
    assert inconsistency(torch.cat(maps), -shift) > 0.1


@pytest.mark.parametrize("network", [TINY, Network("convnet", width=4), Network("blurpool", width=4)], ids=str)
def test_logits_beside_responses_are_the_networks_own(network):
    model = build(network)
    x = torch.randn(3, 3, 32, 32)
    logits, responses = WithResponses(model)(x)
    assert torch.equal(logits, model(x))
    assert torch.equal(responses, model.responses(x))


def test_maps_of_two_sequences_of_scales_are_compared_image_by_image():
    model = build(TINY)
    x = torch.randn(3, 3, 32, 32)
    sequences = [contconv.sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    logits, responses = WithResponses(model)(x, *sequences)
    assert torch.allclose(logits, torch.cat([model(x, scales) for scales in sequences]), atol=1e-6)
    assert len(responses) == 6
    maps = torch.randn(4, 4, 8, 8)
    assert disagreement(torch.cat([maps, maps])).abs() < 1e-6
    assert disagreement(torch.cat([maps, maps.roll(2, 0)])) > 0.5  # other images than each other's


def test_one_side_has_the_half_of_the_gradient_that_goes_through_it():
    model = build(TINY)
    x = torch.randn(4, 3, 32, 32)
    sequences = [contconv.sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    parameters = list(model.convs.parameters())

    def gradients(one_sided, *scales):
        logits, responses = WithResponses(model, one_sided=one_sided)(x, *scales)
        assert len(logits) == (4 if one_sided else 8)
        return torch.autograd.grad(disagreement(responses), parameters)

    whole, first, second = gradients(False, *sequences), gradients(True, *sequences), gradients(True, *sequences[::-1])
    for both, one, other in zip(whole, first, second, strict=True):
        torch.testing.assert_close(one + other, both, atol=1e-5 * both.abs().max().item(), rtol=1e-4)
    with torch.no_grad():
        assert not WithResponses(model)(x, *sequences)[1].requires_grad


def test_what_all_maps_have_in_common_does_not_count():
    """A loss that could be made small by a large offset would be."""
    torch.manual_seed(0)
    maps, others = torch.randn(2, 6, 4, 8, 8)
    for far in (0.0, 1e3):
        assert disagreement(torch.cat([maps, others]) + far) > 0.5
        assert inconsistency(torch.cat([maps, others]) + far, torch.tensor([1, 2])) > 0.5


def test_a_network_can_be_trained_to_the_same_maps_at_all_scales(data, tmp_path):
    _, test = images(data)
    x = augment.normalized(test.pixels)
    sequences = [contconv.sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    lacking = {}
    for agreement, every in ((0.0, 1), (20.0, 1), (40.0, 2)):
        out = tmp_path / f"of-{agreement:g}-every-{every}"
        run(out, epochs=12, agreement=agreement, agreement_from=0.25, agreement_every=every, data=data)
        model, _ = load_weights(out / "model.safetensors")
        with torch.no_grad():
            lacking[agreement, every] = disagreement(WithResponses(model)(x, *sequences)[1])
    assert lacking[20.0, 1] < 0.7 * lacking[0.0, 1]
    assert lacking[40.0, 2] < 0.8 * lacking[0.0, 1]


def test_a_network_can_be_trained_to_the_same_maps_of_noise(data, tmp_path):
    x = torch.randn(32, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    sequences = [contconv.sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    lacking = {}
    for noise in (0.0, 20.0):
        out = tmp_path / f"of-{noise:g}"
        run(out, epochs=12, agreement=0.1, agreement_noise=noise, data=data)
        model, _ = load_weights(out / "model.safetensors")
        with torch.no_grad():
            lacking[noise] = disagreement(WithResponses(model)(x, *sequences)[1])
    assert lacking[20.0] < 0.7 * lacking[0.0]


def test_noise_stands_for_pairs_of_images_in_both_sequences():
    both = torch.arange(2 * 16)
    assert part_of(both, NOISE).tolist() == [6, 7, 14, 15, 22, 23, 30, 31]
    assert sorted(torch.cat([part_of(both, NOISE), part_of(both, IMAGES)]).tolist()) == both.tolist()


def test_a_network_can_be_trained_to_move_with_the_image(data, tmp_path):
    _, test = images(data)
    x = augment.normalized(test.pixels)
    similar = {}
    for consistency in (0.0, 20.0):
        out = tmp_path / f"of-{consistency:g}"
        run(out, epochs=12 if consistency else 24, consistency=consistency, data=data)
        model, _ = load_weights(out / "model.safetensors")
        shifts = drawn_shifts(len(x), 4, seed=0)
        canvas = torch.nn.functional.pad(x, (4,) * 4, mode="reflect")
        with torch.no_grad():
            still, moved = (
                Outputs(model.responses(crop), model(crop)) for crop in (windows(canvas, 4), windows(canvas, 4, shifts))
            )
        similar[consistency] = compared(still, moved, shifts).after_relu
    assert 1 - similar[20.0] < 0.5 * (1 - similar[0.0])
