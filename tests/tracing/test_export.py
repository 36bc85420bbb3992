"""torch.export and ONNX: the program that comes back, and onnxruntime, say what the eager layer says."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import cycle

import onnxruntime
import pytest
import torch
from problems import KERNEL_CASES, PADDING_MODES, Problem, assert_near, layer_of
from torch.export import Dim, export

import contconv
from contconv import cli
from contconv.exporting import onnx_program, save_onnx
from contconv.models import CCNet, ConvNet, equal_steps
from contconv.models.networks import Network, build, save_weights
from contconv.size import exact_scales

SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
KERNEL_SIZE = (3, 2, 3)
SCALES = (2 / 3, 0.5, 1.5, 0.71)
TWO = ("internal", "cubic") * 2


class Several(torch.nn.Module):
    """One layer for each name of a kernel, all padding modes among them."""

    def __init__(self, axes: int, names: Sequence[str], *, stretch: bool = False) -> None:
        super().__init__()
        modes, scales = cycle(PADDING_MODES), cycle(SCALES)
        self.layers = torch.nn.ModuleList()
        for name, mode, scale in zip(names, modes, scales, strict=False):
            kernel = KERNEL_CASES[name]
            antialias = stretch and not kernel.per_tap
            problem = Problem(SIZES[axes], KERNEL_SIZE[:axes], padding_mode=mode, channels=(2, 2), antialias=antialias)
            layer = layer_of(kernel.fitted(problem), kernel, dtype=torch.float32)
            layer.scale = exact_scales(scale, axes)
            self.layers.append(layer)

    def forward(self, x):
        return [layer(x) for layer in self.layers]


class Joined(Several):
    """`Several` with one output, as an ONNX file has here."""

    def forward(self, x):
        return torch.cat([y.flatten(1) for y in super().forward(x)], dim=1)

    def assert_same(self, found, x):
        """Every layer by itself, to 1e-5 of its largest value."""
        wanted = [y.flatten(1) for y in Several.forward(self, x)]
        parts = found.split([want.shape[1] for want in wanted], dim=1)
        for layer, got, want in zip(self.layers, parts, wanted, strict=True):
            assert (got - want).abs().max() <= 1e-5 * want.abs().max(), str(layer)


def images(axes: int, *, batch: int = 3, larger: int = 0) -> torch.Tensor:
    return torch.randn(batch, 2, *(n + larger + number for number, n in enumerate(SIZES[axes])))


def run_onnx(path, x) -> torch.Tensor:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@torch.no_grad()
@pytest.mark.parametrize(("axes", "names"), [(1, TWO), (2, tuple(KERNEL_CASES)), (3, TWO)])
def test_programs_and_onnx_files_take_any_batch_for_every_kernel_and_padding_mode(axes, names, tmp_path):
    model = Joined(axes, names).eval()
    program = onnx_program(model, images(axes))
    assert {node.domain for node in program.model.graph} == {""}
    program.save(str(tmp_path / "several.onnx"))
    exported = program.exported_program
    if axes == 1:
        torch.export.save(exported, tmp_path / "several.pt2")
        exported = torch.export.load(tmp_path / "several.pt2")
    x = images(axes, batch=5)
    model.assert_same(run_onnx(tmp_path / "several.onnx", x), x)
    model.assert_same(exported.module()(x), x)


@torch.no_grad()
def test_an_exported_program_takes_images_of_any_size():
    model = Several(2, ("spline", "cubic"), stretch=True).eval()
    sizes = dict.fromkeys((0, 2, 3), Dim.DYNAMIC)
    program = export(model, (images(2, larger=8),), dynamic_shapes=(sizes,)).module()
    for larger in (7, 12, 13):
        x = images(2, batch=2, larger=larger)
        for layer, got, want in zip(model.layers, program(x), model(x), strict=True):
            assert_near(got, want, about=str(layer))


@torch.no_grad()
@pytest.mark.parametrize(("axes", "names"), [(1, TWO[:2]), (2, ("internal-per-tap",))])
def test_programs_and_onnx_files_take_images_of_any_size(axes, names, tmp_path):
    model, path = Joined(axes, names).eval(), tmp_path / "several.onnx"
    program = onnx_program(model, images(axes, larger=8), dynamic_size=True)
    program.save(str(path))
    for larger in (7, 13):
        x = images(axes, batch=2, larger=larger)
        model.assert_same(run_onnx(path, x), x)
        model.assert_same(program.exported_program.module()(x), x)


def test_gradients_of_an_exported_program_are_those_of_the_layer():
    layer, x = contconv.ContinuousConv2d(2, 3, 3, scale=2 / 3), torch.randn(2, 2, 7, 6)
    program = export(layer, (x,)).module()
    program(x).pow(2).sum().backward()
    found = {name: p.grad for name, p in program.named_parameters()}
    layer.zero_grad()
    layer(x).pow(2).sum().backward()
    for name, parameter in layer.named_parameters():
        assert_near(found[name], parameter.grad, about=name)


def test_plans_made_while_exporting_serve_eager_calls_afterwards():
    layer, x = contconv.ContinuousConv2d(2, 3, 3, scale=5 / 8).eval(), torch.randn(2, 2, 11, 13)
    export(layer, (x,))
    for strategy in ("phases", "factored", "reference"):
        layer.strategy = strategy
        assert type(layer(x)) is torch.Tensor


def test_the_command_exports_a_network_at_another_scale(tmp_path, capsys):
    weights, out = tmp_path / "net.safetensors", tmp_path / "net.onnx"
    network = Network(kernel="spline", width=2, hidden=8)
    net = build(network)
    assert isinstance(net, CCNet)
    save_weights(weights, net, network)
    assert cli.main(["export", str(weights), "--scale", "2/3", str(out)]) == 0
    assert "12" in capsys.readouterr().out
    x = torch.randn(3, 3, 12, 12)
    with torch.no_grad():
        assert_near(run_onnx(out, x), net.eval()(x, equal_steps(7, Fraction(2, 3))))


def test_the_command_refuses_what_it_cannot_do_and_writes_nothing(tmp_path, capsys):
    weights = tmp_path / "net.safetensors"
    save_weights(weights, ConvNet(width=2, hidden=8), Network(model="convnet", width=2, hidden=8))
    assert cli.main(["export", str(weights), "--scale", "2/3", str(tmp_path / "net.onnx")]) == 2
    assert "--scale is for ccnet" in capsys.readouterr().err
    assert cli.main(["export", str(weights), str(tmp_path / "net.pt")]) == 2
    assert "ends in .onnx" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


def test_an_unsupported_case_raises_before_a_file_is_written(tmp_path):
    layer, x = contconv.ContinuousConv2d(2, 2, 3), torch.randn(1, 2, 9, 9)
    with pytest.raises(ValueError, match="training mode"):
        save_onnx(tmp_path / "layer.onnx", layer, x)
    with pytest.raises(Exception, match="size= alone"):
        save_onnx(tmp_path / "layer.onnx", layer.eval(), x, dynamic_size=True, size=(5, 5))
    assert not list(tmp_path.iterdir())
