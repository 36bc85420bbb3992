"""How many images keep their class when they are shifted, as `contconv.cifar.equivariance` defines it."""

from collections.abc import Callable

from torch import Tensor

from contconv.cifar.equivariance import canvas_of_images, drawn_shifts, windows
from contconv.models.resnet import normalized


def consistencies(
    classes: Callable[[Tensor], Tensor], pixels: Tensor, shifts: tuple[int, ...], seed: int
) -> dict[str, float]:
    """Percentages by largest shift. Beyond the border lies the reflected image.

    classes: normalised images [N, 3, 32, 32] -> [N].
    """
    margin = max(shifts)
    if margin >= min(pixels.shape[-2:]):
        raise ValueError(f"shifts must be smaller than the images of {tuple(pixels.shape[-2:])} pixels, got {margin}")
    canvas = normalized(canvas_of_images(pixels, margin, "reflect") / 255)
    still = classes(windows(canvas, margin))
    found = {}
    for largest in shifts:
        moved = classes(windows(canvas, margin, drawn_shifts(len(canvas), largest, seed)))
        found[str(largest)] = 100 * (still == moved).double().mean().item()
    return found
