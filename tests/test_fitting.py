"""`fit` finds the kernel that made y of x, whatever the channels, axes, paddings and dtypes."""

import pytest
import torch

from contconv import InternalNet, SplineKernel, Table, continuous_conv
from contconv.fitting import fit
from contconv.fitting.moments import moments
from contconv.functional import planned


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("axes", [1, 2])
def test_a_spline_is_found_exactly_in_one_solve(axes, padding_mode):
    x = torch.randn(2, 3, *[29, 31][:axes], dtype=torch.float64)
    true = SplineKernel(3, 2, (3,) * axes, dtype=torch.float64)
    geometry = {"scale": 0.7123, "padding_mode": padding_mode}
    with torch.no_grad():
        y = continuous_conv(x, true, **geometry)
    found = SplineKernel(3, 2, (3,) * axes, dtype=torch.float64)
    assert fit(found, x, y, **geometry).mse < 1e-18
    torch.testing.assert_close(found.mixing, true.mixing, rtol=0, atol=1e-7)


def test_a_float32_kernel_stays_float32():
    x = torch.rand(1, 1, 20, 20)
    kernel = SplineKernel(1, 1, (3, 3))
    fit(kernel, x, x[..., :14, :14], scale=0.7)
    assert kernel.mixing.dtype == torch.float32


@pytest.mark.parametrize("channels", [(1, 1), (2, 3)])
def test_a_net_comes_near_another_net(channels):
    x = torch.randn(1, channels[0], 40, 40, dtype=torch.float64)
    true = InternalNet(*channels, (3, 3), dtype=torch.float64)
    with torch.no_grad():
        y = continuous_conv(x, true, scale=0.83)
    found = InternalNet(*channels, (3, 3), dtype=torch.float64)
    seen = []
    result = fit(found, x, y, scale=0.83, steps=12, starts=2, watch=seen.append)
    assert result.mse < 0.05 * y.var().item()
    with torch.no_grad():
        made = continuous_conv(x, found, scale=0.83)
    assert result.mse == pytest.approx((made - y).square().mean().item(), rel=1e-9)
    assert list(result.history) == sorted(result.history, reverse=True)
    assert {step.start for step in seen} == {0, 1}
    last = [step for step in seen if step.start == result.start][-1]
    for name, parameter in found.named_parameters():
        torch.testing.assert_close(parameter.detach(), last.parameters[name])


@pytest.mark.parametrize("rows_at_once", [2**24, 2000])
def test_moments_give_the_layers_error_for_a_kernel_that_is_linear_between_nodes(monkeypatch, rows_at_once):
    monkeypatch.setattr("contconv.fitting.moments.MOST_NUMBERS_AT_ONCE", rows_at_once)
    x = torch.randn(2, 1, 23, 19, dtype=torch.float64)
    kernel = InternalNet(1, 1, (3, 4), dtype=torch.float64)
    with torch.no_grad():
        for layer in kernel.layers:
            layer.bias.fill_(100.0)  # all units stay on their linear side: the net is one plane
        made = continuous_conv(x, kernel, scale=(0.9, 1.3), padding_mode="zeros")
        y = torch.randn_like(made)
        problem = planned(x.shape, kernel, scale=(0.9, 1.3), size=None, padding_mode="zeros", antialias=False, center=0)
        second = moments(x, y, problem.axes, "zeros", 3)
        values = kernel(second.displacements).mT
        mse = second.mse(values, second.product(values))
    assert mse == pytest.approx((made - y).square().mean().item(), rel=1e-9)


def test_what_cannot_be_fitted_is_refused():
    x = torch.rand(1, 1, 9, 9)
    with pytest.raises(ValueError, match="kernel must be learned, of the displacement"):
        fit(Table(torch.nn.Parameter(torch.rand(1, 1, 3, 3))), x, x, scale=1)
    with pytest.raises(ValueError, match="several images are several samples, not channels"):
        fit(SplineKernel(1, 1, (3, 3)), x.expand(1, 3, 9, 9), x.expand(1, 3, 9, 9), scale=1)
    with pytest.raises(ValueError, match=r"y must have the output's size \(5, 5\)"):
        fit(InternalNet(1, 1, (3, 3)), x, x, scale=0.5, steps=1, starts=1)
    with pytest.raises(ValueError, match="fit takes at most 4000"):
        fit(SplineKernel(30, 30, (3, 3)), x.expand(1, 30, 9, 9), x.expand(1, 30, 9, 9), scale=1)
    with pytest.raises(TypeError, match="kernel must be a module with a basis"):
        fit(torch.nn.ReLU(), x, x, scale=1)
