"""`contconv.scales` runs a model at other scales inside: siblings follow, nothing else notices."""

import threading
from fractions import Fraction

import pytest
import torch
from nets import NETS, Branches, Residual, Sliced, UNet, input_of
from torch import nn
from torch.nn import functional as F

import contconv


def sizes(model, x, scales, **options):
    """The output sizes of a model's layers under these scales."""
    seen = {}
    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(lambda module, args, y, name=name: seen.__setitem__(name, tuple(y.shape[2:])))
    with contconv.scales(model, scales, **options):
        model(x)
    return seen


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("layers", ["strided", "all"])
def test_without_a_scale_nothing_changes(name, layers):
    net, x = NETS[name](), input_of(name)
    model = contconv.convert(net, layers)
    torch.testing.assert_close(model(x), net(x))
    with contconv.scales(model, {}):
        torch.testing.assert_close(model(x), net(x))
    model(x).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_shortcut_follows_its_block():
    model = contconv.convert(Residual())
    seen = sizes(model, input_of("residual"), {"down1": 0.7})
    assert seen["down1"] == seen["short1"] == (23, 23)  # ceil(0.7 * 32)
    assert seen["down2"] == seen["short2"] == (12, 12)  # ceil(8 * 1.4)
    seen = sizes(model, input_of("residual"), {"short2": 0.4})
    assert (seen["down1"], seen["down2"]) == ((16, 16), (7, 7))


def test_of_all_layers_those_that_resize_by_themselves_follow():
    model = contconv.convert(Residual(), "all")
    seen = sizes(model, input_of("residual"), {"down1": 0.7})
    assert seen["down1"] == seen["same1"] == seen["short1"] == (23, 23)


def test_one_number_is_for_the_convolutions_that_shrink():
    model = contconv.convert(Residual(), "all")
    seen = sizes(model, input_of("residual"), 0.4)
    assert (seen["stem"], seen["down1"], seen["down2"]) == ((32, 32), (13, 13), (6, 6))  # ceil(16 * .8), ceil(8 * .64)


def test_the_way_up_undoes_the_way_down():
    model = contconv.convert(UNet())
    seen = sizes(model, input_of("unet"), {"down1": 0.6, "down2": 0.4})
    assert seen["down1"] == seen["up2"] == (20, 20)
    assert seen["down2"] == (8, 8)  # ceil(8 * 1.2 * 0.8)
    assert seen["up1"] == (32, 32)


def test_a_pooling_follows_and_patterns_choose_and_axes_differ():
    model = contconv.convert(Branches(flatten=False))
    seen = sizes(model, input_of("branches"), {"con*": (0.25, 0.75)})
    assert seen["conv"] == seen["pool"] == (8, 24)


def test_a_flattened_map_keeps_its_size():
    model = contconv.convert(Branches())
    seen = sizes(model, input_of("branches"), {"conv": 0.75})
    assert seen["conv"] == seen["pool"] == (24, 24)
    assert seen["last"] == (8, 8)
    with pytest.raises(ValueError, match=r"flattened or cut up .* factor of 1\.44 .*nets\.py:\d+, in forward"):
        sizes(model, input_of("branches"), {"conv": 0.6, "last": 0.6})


def test_what_cannot_follow_is_named_with_its_line():
    model = contconv.convert(Sliced())
    with pytest.raises(ValueError, match=r"maps that meet .* factor of 1\.2 \(nets\.py:\d+, in forward\)"):
        sizes(model, input_of("sliced"), {"down": 0.6})
    both = contconv.convert(Sliced(), "all")
    seen = sizes(both, input_of("sliced"), {"stem": 0.7})
    assert seen == {"stem": (23, 23), "down": (12, 12)}


def test_contradictions_are_refused():
    model = contconv.convert(Residual())
    with pytest.raises(ValueError, match=r"with down1, short1 at these scales"):
        sizes(model, input_of("residual"), {"down1": 0.6, "short1": 0.7})


def test_without_following_only_the_named_layers_change():
    model = contconv.convert(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)))
    seen = sizes(model, input_of("unet"), {"0": 0.7}, follow=False)
    assert seen == {"0": (23, 23), "1": (12, 12)}


def test_models_of_continuous_layers_can_be_scaled_too():
    model = nn.Sequential(contconv.ContinuousConv2d(3, 4, 3, 0.5), nn.ReLU(), contconv.ContinuousConv2d(4, 4, 3, 0.5))
    assert sizes(model, input_of("unet"), {"0": 0.7})["2"] == (12, 12)


def test_a_part_of_a_model_can_be_called_alone():
    model = contconv.convert(Residual())
    with contconv.scales(model, {"down1": 0.75}):
        assert model.down1(torch.zeros(1, 8, 32, 32)).shape[2:] == (24, 24)


def test_blocks_inside_each_other():
    model, other = contconv.convert(Residual()), contconv.convert(Branches(flatten=False))
    x = input_of("residual")
    plain = model(x)
    with contconv.scales(model, {"down1": 0.7}):
        outer = model(x)
        with contconv.scales(other, {"conv": 0.75}):
            torch.testing.assert_close(model(x), outer)
            assert other(x).shape[2:] == (12, 12)
        with contconv.scales(model, {"down1": 0.6}):
            assert not torch.equal(model(x), outer)
        torch.testing.assert_close(model(x), outer)
        assert other(x).shape[2:] == (8, 8)
    torch.testing.assert_close(model(x), plain)


def test_an_error_inside_ends_the_block():
    model = contconv.convert(Residual())
    x = input_of("residual")
    plain = model(x)
    with pytest.raises(RuntimeError), contconv.scales(model, {"down1": 0.7}):
        raise RuntimeError
    assert torch.equal(model(x), plain)


def test_threads_do_not_see_each_other():
    model = contconv.convert(Residual()).eval()
    x = input_of("residual")
    wanted = [Fraction(n, 10) for n in (4, 5, 6, 7)]
    expected = []
    for scale in wanted:
        with contconv.scales(model, {"down1": scale}):
            expected.append(model(x).detach())
    got: dict = {}
    start = threading.Barrier(len(wanted))

    def work(number):
        start.wait()
        with contconv.scales(model, {"down1": wanted[number]}):
            got[number] = [model(x).detach() for _ in range(3)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, want in enumerate(expected):
        for y in got[number]:
            torch.testing.assert_close(y, want)
    assert not torch.allclose(expected[0], expected[1])


def test_looking_ahead_leaves_the_model_alone():
    model = contconv.convert(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Dropout()))
    model.train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    contconv.plan(model, (16, 16), scales={"0": 0.7})
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training


def test_gradients_flow_at_every_scale():
    model = contconv.convert(UNet())
    x = input_of("unet").requires_grad_()
    with contconv.scales(model, {"down1": 0.6}):
        model(x).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in (x, *model.parameters()))


def test_a_module_that_is_called_twice():
    conv = nn.Conv2d(3, 3, 3, 2, 1)
    model = contconv.convert(nn.Sequential(conv, nn.ReLU(), conv))
    for name in ("0", "2"):
        with contconv.scales(model, {name: 0.7}):
            assert model(torch.zeros(1, 3, 32, 32)).shape[2:] == (16, 16)  # ceil(8 * 1.4 * 1.4)


class Awkward(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, 2, 1)

    def forward(self, x):
        return self.conv(x) if x.sum().item() > 0 else x


def test_a_model_that_looks_at_numbers_is_refused_with_a_way_out():
    model = contconv.convert(Awkward())
    x = torch.ones(1, 3, 8, 8)
    with pytest.raises(ValueError, match="must work on tensors without numbers"), contconv.scales(model, {"conv": 0.7}):
        model(x)
    with contconv.scales(model, {"conv": 0.75}, follow=False):
        assert model(x).shape[2:] == (6, 6)


class Interpolated(nn.Module):
    """The upsampling of many segmentation networks: to the size of something else."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, 2, 1)
        self.more = nn.Conv2d(4, 4, 3, 2, 1)

    def forward(self, x):
        y = self.down(x)
        z = F.interpolate(self.more(y), size=y.shape[2:])
        return F.interpolate(y + z, size=x.shape[2:])


def test_code_that_asks_for_sizes_needs_no_help():
    model = contconv.convert(Interpolated())
    seen = sizes(model, input_of("unet"), {"down": 0.7, "more": 0.3})
    assert seen == {"down": (23, 23), "more": (7, 7)}  # ceil(8 * 1.4 * 0.6)


def test_bad_scales():
    model = contconv.convert(Residual())
    with (
        pytest.raises(ValueError, match="no continuous layer 'dwon1'; it has 'down1'"),
        contconv.scales(model, {"dwon1": 0.5}),
    ):
        pass
    with pytest.raises(ValueError, match="scale must be positive"), contconv.scales(model, {"down1": 0}):
        pass
    with (
        pytest.raises(ValueError, match="one number is for convolutions that shrink"),
        contconv.scales(contconv.convert(nn.Sequential(nn.Conv2d(3, 3, 3)), "all"), 0.5),
    ):
        pass
