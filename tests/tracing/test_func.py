"""torch.func goes through every strategy: vmap, per-sample gradients, jacobians, forward mode."""

import pytest
import torch
from problems import KERNEL_CASES, STRATEGY_NAMES, Problem, assert_near, input_of, layer_of, run
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import contconv

SHRUNK = Problem((5, 4), (3, 2), scale=2 / 3, channels=(2, 2), groups=2)
HALVED = Problem((4, 6), (3, 2), scale=0.5, channels=(2, 2), groups=2)
KERNELS = ("internal", "internal-per-tap", "waves", "cubic")
CASES = [(p, k, s) for p in (SHRUNK, HALVED) for k in KERNELS for s in STRATEGY_NAMES]


def layer_and_input(problem, kernel, strategy, dtype=torch.float64):
    kernel = KERNEL_CASES[kernel]
    problem = kernel.fitted(problem)
    x = input_of(problem, batch=3, dtype=dtype)
    able = run(problem, kernel, strategy, x, dtype=dtype) is not None
    layer = layer_of(problem, kernel, strategy=strategy if able else None, dtype=dtype)
    layer.scale = (problem.scale,) * 2
    return layer, x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("problem", "kernel", "strategy"), CASES)
def test_vmap_over_images_is_the_batch(problem, kernel, strategy, dtype):
    layer, x = layer_and_input(problem, kernel, strategy, dtype)
    with torch.no_grad():
        assert_near(vmap(lambda image: layer(image[None])[0])(x), layer(x))


def test_vmap_takes_a_layer_as_it_is():
    layer, x = contconv.ContinuousConv2d(3, 4, 3, scale=0.7), torch.randn(5, 2, 3, 8, 8)
    assert_near(vmap(layer)(x), torch.stack([layer(one) for one in x]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("problem", "kernel", "strategy"), CASES)
def test_gradients_per_sample_are_those_of_each_sample_alone(problem, kernel, strategy, dtype):
    layer, x = layer_and_input(problem, kernel, strategy, dtype)
    parameters = dict(layer.named_parameters())

    def loss(parameters, image):
        return functional_call(layer, parameters, (image[None],)).pow(2).sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for number, image in enumerate(x):
        alone = torch.autograd.grad(layer(image[None]).pow(2).sum(), list(parameters.values()))
        for name, want in zip(parameters, alone, strict=True):
            assert_near(found[name][number], want, 1e-4 if dtype == torch.float32 else None, name)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_jvp_in_input_and_parameters_agrees_with_finite_differences(kernel, strategy):
    layer, x = layer_and_input(SHRUNK, kernel, strategy)
    primals = {"x": x, **{name: p.detach() for name, p in layer.named_parameters()}}
    tangents = {name: torch.randn_like(value) for name, value in primals.items()}

    def output(values):
        return functional_call(layer, {n: v for n, v in values.items() if n != "x"}, (values["x"],))

    step = 1e-6
    ahead, behind = ({n: v + way * step * tangents[n] for n, v in primals.items()} for way in (1, -1))
    with torch.no_grad():
        want = (output(ahead) - output(behind)) / (2 * step)
    assert_near(jvp(output, (primals,), (tangents,))[1], want, 1e-7)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_tangents_are_there_in_evaluation_too_and_leave_nothing_behind(strategy):
    """Evaluation keeps samples of the kernel; a parameter's tangent must neither be lost to them nor stay in them."""
    layer, x = layer_and_input(SHRUNK, "internal", strategy)
    layer.eval().requires_grad_(False)
    before = layer(x)
    with forward_ad.dual_level():
        mixing = forward_ad.make_dual(layer.kernel.mixing, torch.ones_like(layer.kernel.mixing))
        y = functional_call(layer, {"kernel.mixing": mixing}, (x,))
        tangent = forward_ad.unpack_dual(y).tangent
        assert tangent.abs().sum() > 0
    after = layer(x)
    assert_near(after, before)
    assert forward_ad._current_level == -1


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("kernel", ["internal", "cubic"])
def test_jacobians_and_hessians_are_the_same_from_either_end(kernel, strategy):
    layer, x = layer_and_input(HALVED, kernel, strategy)
    one = x[:1, :, :3, :3]
    assert_near(jacfwd(layer)(one), jacrev(layer)(one))

    def loss(x):
        return layer(x).pow(3).sum()

    assert_near(hessian(loss)(one), jacrev(jacrev(loss))(one))


def test_plain_calls_work_after_a_transform_made_the_plans():
    """What is kept of a plan must not be a tensor of the transform."""
    layer, x = layer_and_input(Problem((7, 9), (3, 3), scale=5 / 7, channels=(2, 2)), "internal", "phases")
    grad(lambda x: layer(x).sum())(x)
    x = x.float()
    layer = layer.float()
    grad(lambda x: layer(x).sum())(x)
    layer(x).sum().backward()
    assert layer.kernel.mixing.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.37345, 0.71])
def test_gradients_per_sample_of_few_output_channels(scale, dtype):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(16, 3, 3, scale, strategy="factored").to(dtype)
    parameters, x = dict(layer.named_parameters()), torch.randn(2, 16, 13, 40, dtype=dtype)

    def loss(parameters, image):
        return functional_call(layer, parameters, (image[None],)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for number, image in enumerate(x):
        for name, gradient in grad(loss)(parameters, image).items():
            torch.testing.assert_close(found[name][number], gradient)
