"""Whole programs: CCNet through torch.export, and a layer as a package of AOTInductor, which needs no Python."""

from fractions import Fraction

import torch
from problems import assert_near
from torch.export import Dim, export

import contconv
from contconv.models import CCNet


class Features(torch.nn.Module):
    def __init__(self, net: CCNet, scales: list) -> None:
        super().__init__()
        self.net = net
        self.scales = scales

    def forward(self, x):
        return self.net.features(x, self.scales)


@torch.no_grad()
def test_ccnet_exports_with_any_batch():
    net = CCNet("spline", width=2, hidden=8).eval()
    program = export(net, (torch.randn(2, 3, 32, 32),), dynamic_shapes=({0: Dim("batch")},)).module()
    x = torch.randn(5, 3, 32, 32)
    assert_near(program(x), net(x))


@torch.no_grad()
def test_features_of_ccnet_export_with_any_height():
    """Any width as well takes twice as long."""
    model = Features(CCNet("spline", width=1, hidden=8).eval(), [Fraction(4, 5), Fraction(5, 6)] * 3 + [0.9])
    program = export(model, (torch.randn(1, 3, 24, 20),), dynamic_shapes=({2: Dim.DYNAMIC},)).module()
    for height in (17, 41):
        x = torch.randn(1, 3, height, 20)
        assert_near(program(x), model(x))


@torch.no_grad()
def test_a_package_of_aotinductor_takes_any_batch(tmp_path):
    layer = contconv.ContinuousConv2d(1, 2, 3, 2 / 3, kernel="spline").eval()
    program = export(layer, (torch.randn(2, 1, 6, 7),), dynamic_shapes=({0: Dim("batch", max=64)},))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    x = torch.randn(5, 1, 6, 7)
    assert_near(torch._inductor.aoti_load_package(path)(x), layer(x))
