"""Runs pooled by seed: recomputed by hand."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from orthograd.lab.jobs.bundles import read_bundle
from orthograd.paper.evidence import value_of
from orthograd.paper.studies.pooled_runs import SCALED, SETS, pairs, pooled, pooled_scaled
from orthograd.paper.verdicts.primary import primary

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
