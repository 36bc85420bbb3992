"""torch.export and ONNX: the program that comes back, and onnxruntime, say what the eager layer says."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import cycle

import onnxruntime
import pytest
import torch
from problems import KERNEL_CASES, PADDING_MODES, Problem, assert_near, input_of, layer_of
from torch.export import Dim, export

import contconv
from contconv import cli
from contconv.exporting import onnx_program, save_onnx
from contconv.models import CCNet, ConvNet, equal_steps
from contconv.models.networks import Network, build, save_weights

SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
KERNEL_SIZE = (3, 2, 3)
FEW = ("internal", "internal-per-tap", "spline", "cubic")
SCALES = (2 / 3, 0.5, 1.5, 0.71)


class Several(torch.nn.Module):
    """One layer for each kernel, all padding modes among them (other than on two axes: of a few kinds of kernel)."""

    def __init__(self, axes: int, *, stretch: bool = False, names: Sequence[str] = ()) -> None:
        super().__init__()
        names = names or (KERNEL_CASES if axes == 2 else FEW)
        modes, scales = cycle(PADDING_MODES), cycle(SCALES)
        self.layers = torch.nn.ModuleList()
        for name, mode, scale in zip(names, modes, scales, strict=False):
            kernel = KERNEL_CASES[name]
            antialias = stretch and not kernel.per_tap
            problem = Problem(SIZES[axes], KERNEL_SIZE[:axes], padding_mode=mode, channels=(2, 2), antialias=antialias)
            layer = layer_of(kernel.fitted(problem), kernel, dtype=torch.float32)
            layer.scale = (contconv.size.exact(scale, "scale"),) * axes
            self.layers.append(layer)

    def forward(self, x):
        return [layer(x) for layer in self.layers]


class Joined(Several):
    def forward(self, x):
        return torch.cat([y.flatten(1) for y in super().forward(x)], dim=1)


def images(axes: int, *, batch: int = 3, larger: int = 0) -> torch.Tensor:
    return torch.randn(batch, 2, *(n + larger + number for number, n in enumerate(SIZES[axes])))


def run_onnx(path, x) -> torch.Tensor:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@pytest.mark.parametrize("axes", SIZES)
def test_an_exported_program_takes_any_batch_and_survives_a_file(axes, tmp_path):
    model = Several(axes).eval()
    program = export(model, (images(axes),), dynamic_shapes=({0: Dim("batch")},))
    torch.export.save(program, tmp_path / "program.pt2")
    x = images(axes, batch=5)
    with torch.no_grad():
        found = torch.export.load(tmp_path / "program.pt2").module()(x)
        for layer, got, want in zip(model.layers, found, model(x), strict=True):
            assert_near(got, want, about=str(layer))


@pytest.mark.parametrize(("axes", "stretch"), [(1, False), (2, True)])
def test_an_exported_program_takes_images_of_any_size(axes, stretch):
    model = Several(axes, stretch=stretch, names=FEW).eval()
    sizes = {dim: Dim.DYNAMIC for dim in range(2 + axes) if dim != 1}
    program = export(model, (images(axes, larger=8),), dynamic_shapes=(sizes,)).module()
    for larger in (7, 12, 13):
        x = images(axes, batch=2, larger=larger)
        with torch.no_grad():
            for layer, got, want in zip(model.layers, program(x), model(x), strict=True):
                assert_near(got, want, about=str(layer))


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


@pytest.mark.parametrize("axes", SIZES)
def test_onnxruntime_agrees_for_every_kernel_and_padding_mode(axes, tmp_path):
    model, path = Joined(axes).eval(), tmp_path / "several.onnx"
    save_onnx(path, model, images(axes))
    x = images(axes, batch=4)
    with torch.no_grad():
        parts = Several.forward(model, x)
        found = run_onnx(path, x).split([part[0].numel() for part in parts], dim=1)
    for layer, got, want in zip(model.layers, found, parts, strict=True):
        error = (got - want.flatten(1)).abs().max() / want.abs().max()
        assert error <= 1e-5, str(layer)


@pytest.mark.parametrize("kernel", ["internal", "cubic"])
def test_onnxruntime_agrees_for_images_of_any_size(kernel, tmp_path):
    kernel, path = KERNEL_CASES[kernel], tmp_path / "layer.onnx"
    problem = kernel.fitted(Problem((12, 11), (3, 2), padding_mode="reflect", channels=(2, 2)))
    layer = layer_of(problem, kernel, dtype=torch.float32).eval()
    save_onnx(path, layer, input_of(problem, dtype=torch.float32), dynamic_size=True, scale=(2 / 3, 1.5))
    for size in ((9, 17), (20, 8)):
        x = torch.randn(3, 2, *size)
        with torch.no_grad():
            assert_near(run_onnx(path, x), layer(x, scale=(2 / 3, 1.5)))


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


def test_a_program_has_standard_operations_only():
    program = onnx_program(contconv.ContinuousConv2d(2, 2, 3, scale=0.6).eval(), torch.randn(1, 2, 9, 9))
    assert {node.domain for node in program.model.graph} == {""}
