"""The tables on the last batch, recomputed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
from scipy import stats

from orthograd.lab.jobs.bundles import read_bundle
from orthograd.paper.studies import last_batch
from orthograd.statistics import compare
from tests.paper.test_pooled_runs import by_seed

RESULTS = Path(__file__).parents[2] / "docs/results"


def test_a_small_batch_at_three_batch_sizes_is_compared_by_seed():
    for size in (50, 64, 100):
        with_it, without = (
            by_seed(read_bundle(RESULTS / f"reproduction/resnet18_batch{size}_{images}-baseline.json"), "loss")
            for images in (4810, 4800)
        )
        changes = [without[seed] - with_it[seed] for seed in sorted(with_it.keys() & without.keys())]
        change = last_batch.elsewhere(RESULTS)[f"batches of {size}"].baseline
        assert change.difference == pytest.approx(fmean(changes), rel=1e-9)
        assert change.p == pytest.approx(stats.ttest_1samp(changes, 0).pvalue, rel=1e-6)


def test_most_change_for_the_fewest_steps_is_part_of_the_prediction():
    changes = {
        size: compare([0.0, 0.0], values) for size, values in {50: [0.1, 0.2], 64: [0.2, 0.3], 100: [0.3, 0.4]}.items()
    }
    assert last_batch._of_sizes(changes)[-1].startswith("right")
    assert last_batch._of_sizes({**changes, 64: compare([0.0, 0.0], [0.4, 0.5])})[-1].startswith("wrong")
    assert last_batch._of_sizes({**changes, 50: compare([0.0, 0.0], [-0.1, -0.2])})[-1].startswith("wrong")


def test_the_change_by_the_last_batch_is_a_difference_of_differences():
    loss = {}
    for choice in ("keep", "drop"):
        runs = {
            method: by_seed(read_bundle(RESULTS / f"reproduction/resnet18_{choice}-{method}.json"), "loss")
            for method in ("baseline", "orthograd")
        }
        assert sorted(runs["baseline"]) == sorted(runs["orthograd"]) == list(range(100, 120))
        loss[choice] = {seed: runs["orthograd"][seed] - runs["baseline"][seed] for seed in runs["baseline"]}
    changes = [loss["drop"][seed] - loss["keep"][seed] for seed in range(100, 120)]
    change = last_batch._metric(last_batch.crossed(RESULTS), "clean", "loss").interaction
    assert change.difference == pytest.approx(fmean(changes), rel=1e-9)
    assert change.p == pytest.approx(stats.ttest_1samp(changes, 0).pvalue, rel=1e-6)


def test_a_variant_of_the_last_batch_is_compared_with_the_batch_kept():
    losses = {
        choice: by_seed(read_bundle(RESULTS / f"reproduction/resnet18_{choice}-baseline.json"), "loss")
        for choice in ("keep", "weighted")
    }
    changes = [losses["weighted"][seed] - losses["keep"][seed] for seed in range(100, 110)]
    rows = last_batch.last_batch_why(RESULTS).splitlines()
    (row,) = [row for row in rows if "8/64" in row]
    assert f"{fmean(losses['weighted'][seed] for seed in range(100, 110)):.3f}" in row
    assert f"| {fmean(changes):+.3f} (" in row


def test_a_run_that_broke_down_is_left_out_of_a_row_of_its_own():
    rows = last_batch.last_batch_why(RESULTS).splitlines()
    (row,) = [row for row in rows if "without seed" in row]
    loss = {
        choice: by_seed(read_bundle(RESULTS / f"reproduction/resnet18_{choice}-baseline.json"), "loss")
        for choice in ("keep", "drop", "running_statistics")
    }
    seeds = [seed for seed in range(100, 110) if seed != 101]
    own = fmean(loss["running_statistics"][seed] for seed in seeds)
    assert row.startswith(f"| with running statistics, without seed 101 | 9 | 73.4 | {own:.3f} |")
    for choice in ("keep", "drop"):
        change = fmean(loss["running_statistics"][seed] - loss[choice][seed] for seed in seeds)
        assert f"| {change:+.3f} (".replace("-", "−") in row


def test_predictions_on_the_variants_are_checked_by_the_mean_as_registered():
    outcomes = {prediction: (measured, outcome) for prediction, measured, outcome in last_batch._predictions(RESULTS)}
    measured, outcome = outcomes["With running statistics for it, SGD's mean loss is nearer to dropped"]
    assert outcome == "right"
    assert "without the broken run" in measured
    assert outcomes["⊥Grad lowers the loss about twice as much"][1] == "inconclusive"
    adamw = outcomes["AdamW: ⊥Grad's effect on the loss changes by less than 0.05"][1]
    assert adamw == "right; the interval reaches beyond 0.05"


def test_the_last_batch_on_digits_is_compared_after_the_last_epoch():
    runs = json.loads((RESULTS / "when.json").read_text())["runs"]
    kept, sgd, own = (
        [run["loss"][-1] for run in runs[case][method]]
        for case, method in (
            ("plain CNN", "baseline"),
            ("plain CNN, last batch weighted", "baseline"),
            ("plain CNN, last batch weighted", "orthograd"),
        )
    )
    change, effect = fmean(sgd) - fmean(kept), fmean(own) - fmean(sgd)
    row = next(
        row for row in last_batch.last_batch_digits(RESULTS).splitlines() if row.startswith("| plain CNN | loss")
    )
    assert f"| 10 | 87.4 | {fmean(sgd):.3f} | {change:+.3f} (" in row
    assert f"| {effect:+.3f} (".replace("-", "−") in row


def test_runs_of_the_two_settings_share_images_and_initial_weights():
    fingerprints = {
        choice: read_bundle(RESULTS / f"reproduction/resnet18_{choice}-baseline.json")[0]["fingerprint"]
        for choice in ("keep", "drop")
    }
    assert fingerprints["keep"] == fingerprints["drop"]


def test_a_prediction_can_be_wrong():
    outcomes = [outcome for *_, outcome in last_batch._predictions(RESULTS)]
    assert any(outcome.startswith("wrong") for outcome in outcomes)
    assert any(outcome == "right" for outcome in outcomes)
