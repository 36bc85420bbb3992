"""Every experiment does what it says, on other seeds, scales and methods than the report's."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from contconv import continuous_conv
from contconv.experiments import conv_special_case, generalize, imitate, misalign, record, registry, report, targets
from contconv.experiments.nearest_spline import nearest_spline_error
from contconv.experiments.runner import perform
from contconv.kernels import Cubic, Gaussian, InternalNet, Lanczos, SplineKernel


@pytest.fixture(scope="module")
def small_photo(tmp_path_factory):
    """A crop of the bundled photo, as a user's own file."""
    from contconv.images import PHOTO

    path = tmp_path_factory.mktemp("photos") / "own.png"
    Image.open(PHOTO).crop((120, 60, 280, 180)).save(path)
    return path


@pytest.fixture(scope="module")
def image():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(2, 1, 70, 83, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(
    ("target", "kernel"),
    [
        (targets.BICUBIC, Cubic(-0.75)),
        (targets.LANCZOS, Lanczos(3)),
        (targets.gaussian((1.2, 0.5), 0.0, 6), Gaussian([0.25, 1.44], 6)),
        (targets.gaussian((1.2, 0.5), 45.0, 6), Gaussian([[0.845, 0.595], [0.595, 0.845]], 6)),
    ],
    ids=["bicubic", "lanczos", "gaussian", "rotated gaussian"],
)
@pytest.mark.parametrize("scale", [(0.61234567, 1.2345678), (0.5, 0.5), (0.3333, 0.77)])
def test_other_peoples_resizing_is_what_the_layer_does_with_the_true_kernel(image, target, kernel, scale):
    pair = target.applied(image, scale)
    made = continuous_conv(
        image, kernel, scale=pair.scale, size=pair.size, center=pair.center, padding_mode="replicate"
    )
    torch.testing.assert_close(made, pair.y, rtol=0, atol=1e-10)


def test_a_drawn_scale_lies_in_the_papers_range_and_leaves_no_gap(image):
    for seed in range(20):
        scale = targets.drawn_scale(seed, image, largest_gap=0.1)
        assert all(0.3 <= s <= 1.3 for s in scale)
        assert all(targets.phase_gap(n, s) <= 0.1 for n, s in zip(image.shape[2:], scale, strict=True))


def test_half_leaves_all_but_one_shift_out():
    assert targets.phase_gap(300, 0.5) == 1.0


def test_one_control_point_per_tap_cannot_follow_a_cubic_and_all_splines_with_knots_on_the_pixels_can():
    line, true = targets.BICUBIC.sampled(60)
    assert nearest_spline_error(true, SplineKernel(1, 1, (4, 4), dtype=torch.float64), line) > 0.4
    assert nearest_spline_error(true, SplineKernel(1, 1, (4, 4), density=1, dtype=torch.float64), line) < 1e-12


def test_the_true_kernel_is_normalised_as_the_method_is():
    _, true = targets.gaussian((1.2, 0.5), 10.0, 4).sampled(41)  # ten displacements per pixel
    taps = true[3::10][:4][:, 7::10][:, :4]
    assert taps.sum() == pytest.approx(1)


def test_imitate_finds_a_lanczos_kernel_from_a_users_photo(small_photo):
    config = imitate.Imitate(methods=("lanczos",), seed=5, photo=small_photo, steps=2, starts=1, resolution=40)
    result = imitate.run(config)
    found = result.numbers["lanczos"]
    assert found["spline"]["relative_error"] < 0.03
    assert found["losses"][-1] < found["losses"][0]
    assert {claim.name for claim in result.claims} == {"imitate lanczos: InternalNet", "imitate lanczos: spline"}


def test_the_net_finds_a_gaussian_turned_by_another_angle(small_photo):
    config = imitate.Imitate(
        methods=("gaussian",),
        rotation=20,
        gaussian_size=5,
        seed=2,
        photo=small_photo,
        steps=16,
        starts=1,
        resolution=40,
    )
    found = imitate.run(config).numbers["gaussian"]
    assert found["internal"]["correlation"] > 0.97
    assert found["spline"]["relative_error"] < 0.03


def test_a_sample_of_pixels_has_the_layers_own_values(image):
    pair = targets.BICUBIC.applied(image, (0.7123, 1.1))
    torch.manual_seed(3)
    net = InternalNet(1, 1, (4, 4), dtype=torch.float64)
    sample = generalize.sample(pair, 4000, torch.Generator().manual_seed(0))
    with torch.no_grad():
        made = continuous_conv(
            image, net, scale=pair.scale, size=pair.size, center=pair.center, padding_mode="replicate"
        )
        whole = (made - pair.y).square().mean().item()
    assert sample.mse(net, dict(net.named_parameters())) == pytest.approx(whole, rel=0.1)


def test_a_random_scale_generalizes_and_one_half_does_not(small_photo):
    config = generalize.Generalize(seeds=1, seed=7, photo=small_photo, test_scales=10, pixels=100, steps=6, starts=1)
    result = generalize.run(config)
    (free,), (half,) = result.numbers["float"], result.numbers["half"]
    assert free["ratio"] < 3
    assert half["ratio"] > 100


def test_the_blur_drifts_by_half_a_pixel_and_the_continuous_one_stays():
    result = misalign.run(misalign.Misalign(blurs=12))
    assert result.passed
    assert result.numbers["drift"]["conv"][6] == pytest.approx(3 * 2**0.5, abs=1e-6)


def test_an_odd_blur_does_not_drift():
    result = misalign.run(misalign.Misalign(blurs=5, kernel_size=3))
    assert result.passed
    assert result.claims[0].values[0] == pytest.approx(0, abs=1e-6)


def test_conv_is_a_special_case(small_photo):
    config = conv_special_case.ConvSpecialCase(seed=4, steps=3, channels=2, photo=small_photo)
    assert conv_special_case.run(config).passed


def test_a_failed_claim_is_said_to_fail():
    claim = record.at_most("name", "paper", [0.2, 0.4], 0.1, "error")
    assert not claim.passed
    assert not record.Result((claim,), {}).passed
    assert claim.values == (0.2, 0.4)


def test_what_is_kept_holds_config_versions_machine_seconds_and_numbers(tmp_path):
    kept = perform("misalign", misalign.Misalign(out=tmp_path, blurs=4, seed=9))
    read = json.loads((tmp_path / "misalign.json").read_text())
    assert read == kept
    assert read["config"]["blurs"] == 4
    assert read["versions"]["torch"] == torch.__version__
    assert {"processor", "cores", "threads"} <= read["machine"].keys()
    assert read["seconds"] > 0
    assert len(read["numbers"]["drift"]["conv"]) == 5
    assert read["command"] == "contconv experiment misalign --seed 9 --blurs 4"


def test_the_report_is_one_file_with_every_claim_and_both_pictures(tmp_path):
    kept = perform("misalign", misalign.Misalign(out=tmp_path, blurs=4))
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert page.count("data:image/png;base64,") == 2 * len(kept["figures"])
    for text in (page, (tmp_path / "report.md").read_text()):
        assert all(claim["name"] in text for claim in kept["claims"])
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is True
    assert not list(tmp_path.rglob(".*"))


def test_the_table_of_the_docs_has_a_row_per_claim(tmp_path):
    kept = perform("misalign", misalign.Misalign(out=tmp_path, blurs=4))
    table = report.reproducing(report.records(tmp_path), "contconv report x --docs y")
    assert "| claim | paper | ours | command | time |" in table
    assert all(f"| {claim['name']} |" in table for claim in kept["claims"])


def test_quick_changes_steps_and_no_claim(tmp_path):
    for name, experiment in registry.EXPERIMENTS.items():
        quick = registry.configured(name, quick=True, seed=3, photo=None, out=tmp_path)
        assert type(quick) is experiment.config
        assert quick.seed == 3
    assert registry.configured("generalize", quick=True, seed=0, photo=None, out=tmp_path).seeds >= 5


def test_a_photo_that_is_too_small_is_refused(tmp_path):
    path = tmp_path / "tiny.png"
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(path)
    with pytest.raises(ValueError, match="too few to learn from"):
        imitate.run(imitate.Imitate(photo=path))
