"""What a flop counter hears of the native kernel's gradients is what pencil and paper say."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from contconv import ContinuousConv2d


def counted(call) -> tuple[int, torch.Tensor]:
    """The multiply-adds of a call, as torch counts them, and what it returned."""
    with FlopCounterMode(display=False) as counter:
        y = call()
    return counter.get_total_flops() // 2, y


def test_backward_of_filters_is_twice_the_forward():
    """Gradients of x and of the filters take one pass each; the filters are made of 9 control points, and again on the
    way back."""
    layer = ContinuousConv2d(4, 6, 3, kernel="spline", strategy="phases")
    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    forward, y = counted(lambda: layer(x, scale=2 / 3))
    backward, _ = counted(lambda: y.sum().backward())
    applied, made = 2 * 36 * 9 * 24, 9 * 4 * 9 * 24
    assert (forward, backward) == (applied + made, 2 * applied + 2 * made)


def test_backward_of_the_factored_way_by_hand():
    """With dz = mixing . dy: basis . dz for x, and z again, z . dy for the mixing (a spline's basis learns nothing)."""
    layer = ContinuousConv2d(4, 6, 3, kernel="spline", strategy="factored")
    x = torch.randn(1, 4, 9, 9, requires_grad=True)
    forward, y = counted(lambda: layer(x, scale=2 / 3))
    backward, _ = counted(lambda: y.sum().backward())
    spread, mixed = 36 * 9 * 4 * 9, 36 * 9 * 24
    assert (forward, backward) == (spread + mixed, 2 * (spread + mixed))
