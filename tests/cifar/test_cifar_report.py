"""`contconv cifar table`: means over seeds, claims that can fail, everything on one page."""

import json
from dataclasses import replace
from html import unescape

import pytest
from runs import CCNET, CONVNET, images, write_run

from contconv.cifar import claims, cost, evaluated, tables
from contconv.cifar.cost import Timed, config_of, of_groups
from contconv.cifar.evaluation import Settings
from contconv.cifar.folder import CONFIG, check, write_config
from contconv.cifar.groups import Group, groups, key, pairs
from contconv.cifar.recipe import SHORT, Config
from contconv.cifar.trained import trained
from contconv.cli import main
from contconv.models.networks import Network

QUICK = Settings(images=4, members=(1, 2), draws=2, ensemble_images=6, batch=8)


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    """Two seeds of each network; an epoch of CCNet takes 1.25 times one of ConvNet (15 and 12 seconds)."""
    place = tmp_path_factory.mktemp("runs")
    made = []
    for network, seconds in ((CCNET, 13.0), (CONVNET, 10.0)):
        for seed in (0, 1):
            run = write_run(place / f"{network.model}-{seed}", network, seed=seed, seconds=seconds)
            made.append(evaluated.record(trained(run), images(8), QUICK, f"contconv cifar evaluate {run.name}"))
    return made


@pytest.fixture
def folder(tmp_path, evaluations):
    for number, one in enumerate(evaluations):
        evaluated.write(tmp_path / "runs" / str(number) / "evaluation.json", one)
    (tmp_path / "runs" / "0" / "config.json").write_text("{}")
    (tmp_path / "runs" / "0" / "broken.json").write_text("{")
    return tmp_path / "runs"


def changed(evaluation, **results):
    return {**evaluation, "results": {**evaluation["results"], **results}}


def similar(evaluations, model, value):
    """The same evaluations, where the similarity of one network is `value` everywhere."""
    made = []
    for one in evaluations:
        rows = one["results"]["equivariance"]
        new = {i: {n: {**row, "similarity": value} for n, row in shifts.items()} for i, shifts in rows.items()}
        made.append(changed(one, equivariance=new) if one["network"]["model"] == model else one)
    return made


def test_seeds_of_one_network_are_one_group(evaluations):
    found = groups(evaluations)
    assert [group.label for group in found] == ["ConvNet", "CCNet (spline)"]
    assert [group.seeds for group in found] == [["0", "1"], ["0", "1"]]
    assert [(one.label, other.label) for one, other in pairs(found)] == [("CCNet (spline)", "ConvNet")]


def test_another_training_is_another_group_and_no_pair(evaluations):
    longer = {**evaluations[0]["config"], "recipe": {**evaluations[0]["config"]["recipe"], "epochs": 9}}
    found = groups([{**evaluations[0], "config": longer}, *evaluations[2:]])
    assert len(found) == 2
    assert pairs(found) == []
    assert len(groups([{**evaluations[0], "config": longer}, *evaluations])) == 3


def test_the_same_seed_twice_is_refused(evaluations):
    with pytest.raises(ValueError, match=r"CCNet \(spline\) with seed 0 more than once"):
        groups([evaluations[0], evaluations[0]])


def test_what_was_measured_differently_is_not_put_in_one_table(evaluations):
    other = {**evaluations[3], "settings": {**evaluations[3]["settings"], "images": 5}}
    with pytest.raises(ValueError, match="must have the same settings: images is 4 in"):
        groups([*evaluations[:3], other])


def test_accuracy_is_the_mean_over_seeds_and_its_claims_can_fail(evaluations):
    made = [changed(one, accuracy=a) for one, a in zip(evaluations, (88.0, 87.0, 86.0, 84.0), strict=True)]
    found = claims.accuracy_claims(groups(made))
    assert [claim.passed for claim in found] == [True, True, True]
    assert "87.50 ± 0.71 % (2 seeds)" in [claim.ours for claim in found]
    assert found[2].ours == "87.50 against 85.00 %"
    worse = [changed(one, accuracy=a) for one, a in zip(evaluations, (80.0, 80.0, 86.0, 86.0), strict=True)]
    assert [claim.passed for claim in claims.accuracy_claims(groups(worse))] == [True, False, False]


def test_equivariance_must_be_ahead_by_the_papers_margin_in_every_row(evaluations):
    better = similar(similar(evaluations, "ccnet", 0.95), "convnet", 0.65)
    found = claims.equivariance_claims(groups(better))
    assert len(found) == 6
    assert all(claim.passed for claim in found)  # by 0.30, and the largest margin is 0.29
    closer = similar(similar(evaluations, "ccnet", 0.93), "convnet", 0.80)
    passed = {claim.name: claim.passed for claim in claims.equivariance_claims(groups(closer))}
    assert passed["equivariance: images, ±6: CCNet (spline)"]  # 0.13 against 0.12
    assert not passed["equivariance: noise, ±4: CCNet (spline)"]  # 0.13 against 0.18


def test_a_margin_beyond_one_asks_for_the_papers_share_of_what_lacks(evaluations):
    high = similar(similar(evaluations, "ccnet", 0.97), "convnet", 0.95)  # 40 % of what lacks
    claimed = {claim.name: claim for claim in claims.equivariance_claims(groups(high))}
    images = claimed["equivariance: images, ±6: CCNet (spline)"]
    assert images.wanted == "34% of what ConvNet lacks (+0.12 would be more than 1)"
    assert images.passed
    assert not claimed["equivariance: noise, ±6: CCNet (spline)"].passed  # 66 %
    assert claimed["equivariance: images, ±2: CCNet (spline)"].wanted == "ahead of ConvNet by at least 0.02"


def test_an_ensemble_must_gain_significantly_with_every_seed(evaluations):
    def with_gain(one, mean, p):
        row = {**one["results"]["ensemble"]["members"][1], "over_members": {"mean": mean, "std": 0.1, "p": p}}
        return changed(one, ensemble={**one["results"]["ensemble"], "members": [row]})

    def passed(*gains):
        made = [with_gain(one, *gain) for one, gain in zip(evaluations[:2], gains, strict=True)]
        return [claim.passed for claim in claims.ensemble_claims(groups(made))]

    assert passed((0.5, 0.01), (0.4, 0.02)) == [True]
    assert passed((0.5, 0.01), (0.4, 0.2)) == [False]
    assert passed((0.5, 0.01), (-0.4, 0.01)) == [False]


def test_the_cost_is_the_ratio_of_steps_that_were_timed_by_turns(evaluations):
    found = groups(evaluations)
    (ours, theirs), *_ = pairs(found)
    same = {"batch": 4, "precision": "32-true"}
    base = Timed(theirs.label, False, 2.0, **same)
    steps = [base, Timed(ours.label, False, 2.5, **same), Timed(ours.label, True, 5.0, **same)]
    plain, agreeing = claims.cost_claims(found, steps)
    assert (plain.values, plain.passed) == ((1.25,), True)
    assert (agreeing.values, agreeing.passed) == ((2.5,), False)
    assert "with agreement" in agreeing.name
    table, _ = tables.cost_tables(found, steps)
    times = [(row[1], row[-1]) for row in table["rows"]]
    assert times == [("2000 ms", "1.00"), ("2500 ms", "1.25"), ("5000 ms", "2.50")]
    assert table["head"][-1] == "an image, times ConvNet's"
    assert claims.cost_claims(found, []) == []
    for other in ({"batch": 2}, {"precision": "bf16-mixed"}):
        assert claims.cost_claims(found, [base, Timed(ours.label, False, 2.5, **(same | other))]) == []


def test_without_what_training_needs_nothing_is_timed(evaluations, capsys, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'lightning_fabric'", name="lightning_fabric")

    monkeypatch.setattr(cost, "launched", missing)
    assert of_groups(groups(evaluations), rounds=1) == []
    assert "steps are not timed: lightning_fabric is not installed" in capsys.readouterr().out


def test_a_training_that_is_not_known_here_is_not_timed(evaluations, capsys):
    config = evaluations[0]["config"]
    strange = {**evaluations[0], "config": {**config, "recipe": {**config["recipe"], "cutout": 8}}}
    assert of_groups(groups([strange]), rounds=1) == []
    assert "cutout" in capsys.readouterr().out


def test_steps_are_timed_as_networks_were_trained(evaluations):
    def agreeing(one):
        recipe = {**one["config"]["recipe"], "batch": 4, "agreement": 2.0 * (one["network"]["model"] == "ccnet")}
        return {**one, "config": {**one["config"], "recipe": {**recipe, "agreement_from": 0.9}}}

    found = groups([agreeing(one) for one in evaluations])
    steps = of_groups(found, rounds=1)
    assert [(step.label, step.agreeing) for step in steps] == [
        ("ConvNet", False), ("CCNet (spline, agreement 2)", False), ("CCNet (spline, agreement 2)", True),
    ]  # fmt: skip
    assert all(step.seconds > 0 for step in steps)
    assert config_of(found[1]).recipe.agreement_from == 0.9
    assert of_groups(groups([{**one, "config": None} for one in evaluations[:1]]), rounds=1) == []


def test_the_command_makes_one_page_with_everything(tmp_path, capsys, folder):
    out = tmp_path / "page" / "report.html"
    docs = tmp_path / "docs" / "results.md"
    assert main(["cifar", "table", str(folder), "--out", str(out), "--docs", str(docs)]) == 1  # nobody trained these
    page = out.read_text()
    assert "CIFAR-10 networks" in page
    assert "https://" not in page
    assert page.count("data:image/png;base64,") == 2 * 4
    for text in (page, out.with_suffix(".md").read_text(), docs.read_text()):
        said = unescape(text)
        assert all(words in said for words in ("CCNet (spline)", "0.80 -> 0.91", "times ConvNet's", "over its members"))
    assert (docs.parent / "images" / "cifar-training.png").exists()
    assert "](images/cifar-ensembles.png)" in docs.read_text()
    whole = json.loads(out.with_suffix(".json").read_text())
    assert whole["passed"] is False
    assert [one["experiment"] for one in whole["results"]] == ["accuracy", "equivariance", "ensembles", "cost"]


def test_weights_whose_training_is_unknown_are_shown_without_it(tmp_path, evaluations):
    unknown = {**evaluations[2], "config": None, "course": []}
    evaluated.write(tmp_path / "one.json", unknown)
    assert main(["cifar", "table", str(tmp_path / "one.json"), "--out", str(tmp_path / "r.html")]) in (0, 1)
    assert main(["cifar", "table", str(tmp_path / "one.json"), "--out", str(tmp_path)]) in (0, 1)
    assert (tmp_path / "report.html").exists()
    assert main(["cifar", "table", str(tmp_path / "one.json"), "--out", str(tmp_path / "report.json")]) == 2
    assert "ConvNet" in (tmp_path / "r.md").read_text()


def test_nothing_to_report_is_said(tmp_path, capsys):
    assert main(["cifar", "table", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 2
    assert "no evaluation here" in capsys.readouterr().err
    assert main(["cifar", "table", str(tmp_path / "no"), "--out", str(tmp_path / "r.html")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_runs_from_before_an_option_are_those_with_its_default(evaluations, tmp_path):
    one = evaluations[0]
    older = {**one, "network": {name: value for name, value in one["network"].items() if name != "last_layers"}}
    assert older["network"] != one["network"]
    assert key(older) == key(one)
    recipe = {name: value for name, value in one["config"]["recipe"].items() if name != "diffusion"}
    config = {name: value for name, value in one["config"].items() if name != "init"}
    assert key({**one, "config": {**config, "recipe": recipe}}) == key(one)

    config = Config(Network("ccnet", "taps"), SHORT)
    write_config(tmp_path, config, 1)
    record = json.loads((tmp_path / CONFIG).read_text())
    del record["config"]["network"]["last_layers"], record["config"]["recipe"]["diffusion"]
    (tmp_path / CONFIG).write_text(json.dumps(record))
    check(tmp_path, config)
    with pytest.raises(ValueError, match=r"network.last_layers is 1 there and 2 here"):
        check(tmp_path, replace(config, network=Network("ccnet", "taps", last_kernel="taps", last_layers=2)))


def test_an_evaluation_of_an_older_version_is_refused(evaluations, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**evaluations[0], "kind": "contconv cifar evaluation"}))
    with pytest.raises(ValueError, match=r"made by an older version, which measured less: evaluate .* again"):
        evaluated.read([path])


def test_networks_are_compared_with_those_that_were_trained_for_the_same_and_are_told_apart(evaluations):
    def with_consistency(one):
        changed = {**one["config"], "recipe": {**one["config"]["recipe"], "consistency": 2.0}}
        return {**one, "config": {**changed, "init": {"path": "model.safetensors", "sha256": "ab"}}}

    plain = groups(evaluations)
    assert pairs(plain)
    for model in ("ccnet", "convnet"):
        mixed = groups([with_consistency(one) if one["network"]["model"] == model else one for one in evaluations])
        changed = [group.label for group in mixed if group.model == model]
        assert all("consistency 2, from trained weights" in label for label in changed)
        assert not pairs(mixed)
    assert len(pairs(groups([with_consistency(one) for one in evaluations]))) == len(pairs(plain))


def test_epochs_with_agreement_are_timed_apart():
    course = [{"epoch": n + 1, "seconds": seconds} for n, seconds in enumerate((1.0, 3.0, 2.0, 7.0, 9.0, 8.0))]
    recipe = {"epochs": 6, "agreement": 2.0, "agreement_from": 0.5}
    group = Group("CCNet", ({"config": {"recipe": recipe}, "course": course},))
    assert group.epoch_seconds() == [2.0]
    assert group.epoch_seconds(agreeing=True) == [8.0]
    plain = Group("CCNet", ({"config": {"recipe": {**recipe, "agreement": 0.0}}, "course": course},))
    assert plain.epoch_seconds() == [5.0]
    assert plain.epoch_seconds(agreeing=True) == []
