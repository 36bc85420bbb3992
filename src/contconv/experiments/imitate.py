"""One continuous layer, shown one photo and that photo resized by another method, finds that method's kernel.

The paper (Experiments, "Visualizing the continuous learned kernels"): a single layer is trained to imitate (i) bicubic
resizing, (ii) a Gaussian with another sigma along each axis, rotated by 45 degrees, on a single image at a single
random pair of scales in [0.3, 1.3]; sampled at 200 x 200 displacements, its kernel is that of the method.

Claim: with the paper's internal net (16-16) the learned kernel correlates with the true one by at least 0.95 (bicubic)
and 0.97 (Gaussian); a spline of two pieces per pixel has a relative L2 error of at most 0.03. Under a minute per
method on two cores.

Not as in the paper: Levenberg-Marquardt steps instead of gradient descent, and a drawn scale so near a simple fraction
that its sub-pixel shifts leave a gap of more than 0.05 pixels is drawn again (`--largest-gap 1` takes every draw).
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from contconv.experiments import imitate_figures, targets
from contconv.experiments.nearest_spline import nearest_spline_error
from contconv.experiments.progress import Bar
from contconv.experiments.record import Claim, Config, Result, at_least, at_most, check_positive
from contconv.experiments.targets import Pair, Target
from contconv.fitting import Fit, Step, fit
from contconv.images import photo
from contconv.kernels import InternalNet, SplineKernel

PAPER = "the sampled kernel of the trained layer is that of the imitated method (figure)"
OWN = "(not in the paper)"
CORRELATION = {"bicubic": 0.95, "gaussian": 0.97, "lanczos": 0.95}
SPLINE_ERROR = 0.03
SHOWN = (0, 1, 3, 6, 12, 25, 50, 100, 200, 400)  # iterations to draw


@dataclass(frozen=True)
class Imitate(Config):
    """Learn the kernels of bicubic and Gaussian resizing from one photo at one scale."""

    methods: tuple[Literal["bicubic", "gaussian", "lanczos"], ...] = ("bicubic", "gaussian")
    """What to imitate."""
    scale: tuple[float, float] | None = None
    """The scale to learn at, height and width; by default drawn from [0.3, 1.3] by the seed."""
    largest_gap: float = 0.05
    """Draw a scale again whose sub-pixel shifts leave out more than this, in pixels; 1 takes every draw."""
    sigma: tuple[float, float] = (1.2, 0.5)
    """Of the Gaussian, along its two axes, in pixels."""
    rotation: float = 45.0
    """Of the Gaussian, in degrees."""
    gaussian_size: int = 6
    """The Gaussian's support in pixels."""
    steps: int = 120
    """Levenberg-Marquardt steps."""
    starts: int = 4
    """Random initialisations; the best after a quarter of the steps goes on."""
    resolution: int = 200
    """Displacements per axis at which kernels are compared."""


@dataclass(frozen=True)
class Learned:
    """What was learned of one method."""

    target: Target
    pair: Pair
    line: Tensor
    true: Tensor  # [resolution, resolution]
    internal: Tensor
    spline: Tensor
    course: dict[int, Tensor]  # iteration -> the net's kernel
    errors: dict[int, float]  # iteration -> the loss
    numbers: dict[str, Any]


def run(config: Imitate) -> Result:
    """Fit a net and a spline to each method, and compare their kernels with the true ones."""
    check_positive(config, "steps", "starts")
    check_positive(config, "resolution", "gaussian_size", least=2)
    if not config.methods:
        raise ValueError("--methods must name at least one of bicubic, gaussian, lanczos")
    image = photo(config.photo)
    learned = [learn(config, made(config, name), image) for name in config.methods]
    claims = [claim for one in learned for claim in claims_of(one)]
    return Result(
        tuple(claims), {one.target.name: one.numbers for one in learned}, imitate_figures.figures(learned)
    )  # fmt: skip


def made(config: Imitate, name: str) -> Target:
    """The method of that name."""
    if name == "gaussian":
        return targets.gaussian(config.sigma, config.rotation, config.gaussian_size)
    return {"bicubic": targets.BICUBIC, "lanczos": targets.LANCZOS}[name]


def learn(config: Imitate, target: Target, image: Tensor) -> Learned:
    """Fit a net and a spline to one method."""
    scale = config.scale or targets.drawn_scale(config.seed, image, config.largest_gap)
    pair = target.applied(image, scale)
    line, true = target.sampled(config.resolution)
    support = (target.kernel_size, target.kernel_size)
    d = torch.cartesian_prod(line, line)

    torch.manual_seed(config.seed)
    net = InternalNet(1, 1, support, dtype=torch.float64)
    seen: dict[tuple[int, int], Step] = {}
    with Bar(steps_in_all(config), f"imitate {target.name}") as bar:

        def watch(step: Step) -> None:
            seen[step.start, step.iteration] = step
            bar.step(step.mse)

        outcome = fitted(net, pair, config.steps, config.starts, watch)
    spline = SplineKernel(1, 1, support, density=2, dtype=torch.float64)
    coarse = SplineKernel(1, 1, support, dtype=torch.float64)
    spline_fit = fitted(spline, pair)
    own = {i: step for (start, i), step in seen.items() if start == outcome.start}
    kernels = {i: functional_call(net, step.parameters, (d,)) for i, step in own.items() if i in SHOWN or i == max(own)}
    kernels = {i: kernel.detach().reshape(true.shape) for i, kernel in kernels.items()}
    with torch.no_grad():
        final, by_spline = net(d).reshape(true.shape), spline(d).reshape(true.shape)
    numbers = {
        "scale": scale, "iterations": max(own), "start": outcome.start,
        "internal": measured(final, true) | {"mse": outcome.mse},
        "spline": measured(by_spline, true) | {"mse": spline_fit.mse},
        "spline_bound": nearest_spline_error(true, spline, line),
        "one_control_point_per_tap_bound": nearest_spline_error(true, coarse, line),
        "losses": list(outcome.history),
    }  # fmt: skip
    errors = {i: step.mse for i, step in own.items()}
    return Learned(target, pair, line, true, final, by_spline, kernels, errors, numbers)


def steps_in_all(config: Imitate) -> int:
    """How often a fit will be watched, at most."""
    quarter = -(-config.steps // 4)
    return config.starts * (quarter + 1) + config.steps - quarter if config.starts > 1 else config.steps + 1


def fitted(kernel: torch.nn.Module, pair: Pair, steps: int = 1, starts: int = 1, watch: Any = None) -> Fit:
    """The kernel fitted to what a method did to an image."""
    return fit(
        kernel, pair.x, pair.y, scale=pair.scale, size=pair.size, center=pair.center, padding_mode="replicate",
        steps=steps, starts=starts, watch=watch,
    )  # fmt: skip


def measured(kernel: Tensor, true: Tensor) -> dict[str, float]:
    """How like the true kernel it is."""
    correlation = torch.corrcoef(torch.stack([kernel.flatten(), true.flatten()]))[0, 1].item()
    return {"correlation": correlation, "relative_error": ((kernel - true).norm() / true.norm()).item()}


def claims_of(one: Learned) -> list[Claim]:
    """What is claimed of one method."""
    name = one.target.name
    paper = OWN if name == "lanczos" else PAPER
    correlation = [one.numbers["internal"]["correlation"]]
    error = [one.numbers["spline"]["relative_error"]]
    bound = CORRELATION[name]
    return [
        at_least(f"imitate {name}: InternalNet", paper, correlation, bound, "correlation with the true kernel"),
        at_most(f"imitate {name}: spline", OWN, error, SPLINE_ERROR, "relative L2 error, two pieces per pixel"),
    ]
