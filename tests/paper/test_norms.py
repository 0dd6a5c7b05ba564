"""Weight norms: predictions beside what was recorded, and the sentences of docs/norms.md."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import pytest
import torch

from orthograd.diagnosis import diagnose
from orthograd.diagnosis.shrinkage import HARMLESS, UNDERCONFIDENT
from orthograd.lab.jobs.bundles import read_bundle
from orthograd.lab.networks import MODELS
from orthograd.lab.training.layers import layer_types_of
from orthograd.lab.training.steps import optimizer_of
from orthograd.paper.plan import PAPER, SETTINGS
from orthograd.paper.studies import norms
from orthograd.paper.studies.when_it_hurts import CASES

RESULTS = Path(__file__).parents[2] / "docs/results"
BATCHNORM, HEAD, BIAS = norms.PARTS


@pytest.fixture(scope="module")
def recorded():
    return {setting.title: setting for setting in norms.settings(RESULTS)}


@pytest.fixture(scope="module")
def long(recorded):
    """All labels and 1000 epochs: ten times the steps of the others, with decay on all weights."""
    return [recorded["ResNet-18, 1000 epochs"], recorded["ResNet-18, all labels"]]


def rate_of_decay(config):
    """a of the equation, by hand."""
    return config.learning_rate * config.weight_decay / (1 if config.optimizer == "adamw" else 1 - config.momentum)


@pytest.mark.parametrize(
    ("setting", "steps"),
    [
        ("resnet18", 7_900),
        ("resnet18_drop", 7_800),
        ("resnet18_1000_epochs", 79_000),
        ("resnet18_all_labels", 78_200),
    ],
)
def test_steps_are_those_of_the_runs(setting, steps):
    assert norms.steps_of(SETTINGS[setting]) == steps


def test_a_cosine_schedule_counts_about_half_of_its_steps():
    """The rate of an epoch is that at its start, so that the sum of rates is slightly above half."""
    falling = dataclasses.replace(SETTINGS["resnet18"], schedule="cosine")
    assert norms.steps_of(falling) == pytest.approx(7_900 * 101 / 200, abs=1)


def test_few_and_many_steps_are_both_among_the_settings(recorded, long):
    assert len(recorded) >= 10
    assert {norms.steps_of(setting.config()) for setting in long} == {78_200, 79_000}


def test_batchnorm_weights_of_every_run_of_100_epochs_on_few_labels_follow_the_equation(recorded, long):
    """Within 0.5%: steps added less than that, and recorded norms have four digits.

    AdamW divides the projected gradient, so its update is not exactly orthogonal: 1%, as predicted before the runs.
    """
    count = 0
    for setting in recorded.values():
        if setting in long or "update" in setting.title or "convolutions" in setting.title:
            continue
        factor = math.exp(-rate_of_decay(setting.config()) * norms.steps_of(setting.config()))
        assert setting.predicted(BATCHNORM) == pytest.approx(factor, rel=1e-3)
        close = 0.01 if setting.config().optimizer == "adamw" else 0.005
        for run in setting.pair.candidate:
            assert norms.measured(run, BATCHNORM) == pytest.approx(setting.predicted(BATCHNORM), rel=close)
            count += 1
    assert count >= 60


@pytest.mark.parametrize("title", ["⊥Grad of the update", "decay on convolutions only"])
def test_weights_without_decay_keep_their_norm(recorded, title):
    for setting in (setting for setting in recorded.values() if title in setting.title):
        assert setting.predicted(BATCHNORM) == 1.0
        assert setting.mean(BATCHNORM) == pytest.approx(1.0, rel=0.005)


def test_in_long_training_steps_add_to_batchnorm_weights(long):
    for setting in long:
        for run in setting.pair.candidate:
            assert 4 < norms.measured(run, BATCHNORM) / setting.predicted(BATCHNORM) < 7


def test_weight_decay_alone_is_a_lower_bound_in_every_setting_of_sgd(recorded):
    for setting in recorded.values():
        below = 0.005 if setting.config().optimizer == "adamw" else 0.0005
        for part in norms.PARTS:
            if setting.mean(part) is not None:
                assert setting.mean(part) > (1 - below) * setting.predicted(part)


def test_the_sentences_of_the_page_hold(recorded, long):
    for setting in recorded.values():
        # Head weights are not predicted; the bias ends larger with ⊥Grad.
        assert setting.times(HEAD) > 1 + norms.CLOSE
        if setting.mean(BIAS) is not None:
            assert setting.mean(BIAS, 1) > setting.mean(BIAS, 0)
        # BatchNorm weights shrink about as much without ⊥Grad, but for long training.
        if setting not in long:
            assert setting.times(BATCHNORM, 0) == pytest.approx(1, abs=norms.CLOSE)
    for setting in long:
        for part in (norms.LAST, HEAD):
            assert setting.mean(part, 1) < setting.mean(part, 0) / 2
            ends = [sum(norms.radial(run, part) for run in runs) / len(runs) for runs in setting.methods]
            assert ends[1] > 0.85
            assert ends[0] < 0.6
    wide, narrow = recorded["WideResNet-28-10"], recorded["ResNet-50"]
    assert wide.mean(HEAD, 1) < wide.mean(HEAD, 0)
    assert narrow.mean(HEAD, 1) > narrow.mean(HEAD, 0)


def test_every_setting_with_a_warning_ended_underconfident_and_its_limit_lies_between_two_of_them():
    outcomes = norms._outcomes(RESULTS)
    warned = [mean for _, factor, _, mean in outcomes if factor < UNDERCONFIDENT]
    assert len(warned) >= 5
    assert max(warned) < 0
    ordinary = [mean for title, factor, _, mean in outcomes if factor >= UNDERCONFIDENT and "digits" not in title]
    assert len(ordinary) >= 8
    assert min(ordinary) > 0
    assert f"{len(warned)} of {len(outcomes)} settings, and {len(warned)} of these" in norms.norms_limit(
        RESULTS
    ).replace("\n", " ")


@pytest.mark.parametrize("case", norms.DIGITS)
def test_diagnose_warns_on_digits_where_the_table_says_so(case):
    config, _, method = CASES[case]
    config = dataclasses.replace(config, method=method)
    torch.manual_seed(0)
    model = MODELS[config.model]((1, 8, 8), 10)
    batch = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))
    found = diagnose(
        model,
        torch.nn.CrossEntropyLoss(),
        batch,
        optimizer=optimizer_of(config, model),
        steps=norms.steps_of(config),
    )
    warnings = [warning for warning in found.warnings if warning.startswith("Underconfidence is to be expected")]
    assert bool(warnings) == (norms.lowest(config) < UNDERCONFIDENT)


def test_convolutions_that_batchnorm_follows_do_not_count(recorded):
    """As measured in the runs of table 1, by halving and doubling every parameter."""
    for run in recorded["ResNet-18"].pair.candidate:
        parameters, types = run["diagnosis"]["parameters"], layer_types_of("resnet18")
        measured = {name for name, each in parameters.items() if each["kind"] in HARMLESS}
        assert {name for name in types if types[name] == "convolution"} <= measured
    (config, _, method) = CASES["CNN with batch norm, ten times the decay, on convolutions only"]
    assert norms.lowest(dataclasses.replace(config, method=method)) == 1.0
    assert norms.lowest(config) < UNDERCONFIDENT


def test_a_setting_without_runs_is_skipped(tmp_path):
    (tmp_path / "reproduction").mkdir()
    assert norms.settings(tmp_path) == ()


def test_the_figure_has_a_row_for_each_setting_and_a_panel_for_each_part(recorded):
    root = ElementTree.fromstring(norms.norms_figure(RESULTS))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(recorded) | set(norms.PARTS) <= set(texts)
    marks = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("class") == "mark candidate"]
    assert len(marks) == len(recorded) * len(norms.PARTS)  # one of a bias that starts at zero is in the legend


def test_the_papers_recipe_decays_to_1_over_e_in_20_000_steps():
    assert rate_of_decay(PAPER) * 20_000 == pytest.approx(1)


def test_predictions_on_all_labels_are_checked_by_the_mean():
    runs = {
        method: read_bundle(RESULTS / f"reproduction/resnet18_all_labels-{method}.json")
        for method in ("baseline", "orthograd", "limited_growth")
    }
    seeds = set.intersection(*({run["config"]["seed"] for run in each} for each in runs.values()))

    def mean(method, metric):
        chosen = (run for run in runs[method] if run["config"]["seed"] in seeds)
        return fmean(run["metrics"]["clean"][metric] for run in chosen)

    rows = [row for row in norms.norms_predictions(RESULTS).splitlines() if row.startswith("| All labels")]
    gap, accuracy, ece = (row.strip("| ").split(" | ")[1:] for row in rows)
    distance = mean("limited_growth", "max_softmax") - mean("limited_growth", "top1_accuracy") / 100
    assert gap[0].startswith(f"{distance:+.3f} (")
    assert gap[1].startswith("right" if distance > -0.05 else "wrong")
    change = mean("limited_growth", "top1_accuracy") - mean("baseline", "top1_accuracy")
    assert accuracy[0].startswith(f"{change:+.2f} (".replace("-", "−"))
    assert accuracy[1].startswith("right" if change < 0 else "wrong")
    assert ece[0] == f"{mean('limited_growth', 'ece'):.3f} (⊥Grad {mean('orthograd', 'ece'):.3f})"
    assert ece[1].startswith("right" if mean("limited_growth", "ece") < mean("orthograd", "ece") else "wrong")
    remark = f", with {len(seeds)} paired seeds of the 5 registered" if len(seeds) < 5 else ""
    assert {outcome for _, outcome in (gap, accuracy, ece)} <= {f"right{remark}", f"wrong{remark}"}
