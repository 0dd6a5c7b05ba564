"""Runs pooled by seed, and the last batch kept and dropped: recomputed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from orthograd.lab.jobs.bundles import read_bundle
from orthograd.paper.evidence import value_of
from orthograd.paper.studies import last_batch
from orthograd.paper.studies.pooling import SCALED, SETS, pairs, pooled, pooled_scaled
from orthograd.paper.verdicts.primary import primary
from orthograd.statistics import compare

RESULTS = Path(__file__).parents[2] / "docs/results"


@pytest.fixture(scope="module")
def sets():
    return [pair for *_, pair in pairs(RESULTS)]


def by_seed(records, metric, images="clean"):
    return {record["config"]["seed"]: value_of(record, f"{images}.{metric}") for record in records}


def test_every_set_has_all_of_its_seeds_and_no_other(sets):
    assert [pair.seeds for pair in sets] == [list(seeds) for *_, seeds in SETS]


@pytest.mark.parametrize("metric", ["ece", "loss", "top1_accuracy"])
def test_the_unit_is_the_seed(sets, metric):
    values: dict[int, list[float]] = {}
    for pair in sets:
        sgd, own = by_seed(pair.baseline, metric), by_seed(pair.candidate, metric)
        for seed in pair.seeds:
            values.setdefault(seed, []).append(own[seed] - sgd[seed])
    assert sorted(map(len, values.values())) == [1] * 35 + [4] * 20
    means = [fmean(each) for each in values.values()]
    row = pooled(RESULTS).tables["clean"][metric]
    assert row.baseline.n == len(means) == 55
    assert row.difference == pytest.approx(fmean(means), rel=1e-9)
    assert row.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-6)
    half = stats.t.ppf(0.975, 54) * np.std(means, ddof=1) / math.sqrt(55)
    assert [*row.interval] == pytest.approx([fmean(means) - half, fmean(means) + half], rel=1e-6)


def test_corrupted_images_are_pooled_by_seed_over_the_sets_that_have_them():
    sets = [pair for *_, pair in pairs(RESULTS, "shifted")]
    assert [(pair.seeds[0], len(pair.seeds)) for pair in sets] == [(0, 20)] * 4 + [(100, 20)]
    values: dict[int, list[float]] = {}
    for pair in sets:
        sgd, own = (by_seed(runs, "ece", "shifted") for runs in (pair.baseline, pair.candidate))
        for seed in pair.seeds:
            values.setdefault(seed, []).append(own[seed] - sgd[seed])
    means = [fmean(each) for each in values.values()]
    row = primary(pooled(RESULTS, "shifted"))["shifted.ece"]
    assert row.baseline.n == len(means) == 40
    assert row.difference == pytest.approx(fmean(means), rel=1e-9)
    assert row.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-6)


@pytest.mark.parametrize("last_batch", SCALED)
def test_scaled_corrupted_images_are_pooled_by_seed(last_batch):
    values: dict[int, list[float]] = {}
    for setting in SCALED[last_batch].values():
        sgd, own = (
            {
                record["config"]["seed"]: fmean(each["ece"] for each in record["after_temperature"]["shifted"].values())
                for record in read_bundle(RESULTS / f"reproduction/{setting}-{method}.json")
            }
            for method in ("baseline", "orthograd")
        )
        for seed in sgd.keys() & own.keys():
            values.setdefault(seed, []).append(own[seed] - sgd[seed])
    means = [fmean(values[seed]) for seed in sorted(values)]
    row = pooled_scaled(RESULTS, last_batch).tables["shifted-temperature-scaled"]["ece"]
    assert row.baseline.n == len(means) == 10
    assert row.difference == pytest.approx(fmean(means), rel=1e-9)
    assert row.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-6)


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
    assert adamw == "right, with 5 paired seeds of the 10 registered; the interval reaches beyond 0.05"


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
