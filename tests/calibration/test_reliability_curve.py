from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest

from orthograd import calibration
from orthograd.calibration import Evaluation, average
from orthograd.calibration.reliability import wilson
from tests.calibration.samples import predictions


def curve(seed=0, **options):
    evaluation = Evaluation()
    evaluation.update(*predictions(seed=seed, **options))
    return evaluation.reliability()


def test_a_curve_says_what_its_evaluation_says():
    found, metrics = curve(), calibration.evaluate(*predictions())
    assert found.ece == pytest.approx(metrics.ece)
    assert found.ece_by_chance == metrics.ece_by_chance
    assert found.ece_by_chance_limit == metrics.ece_by_chance_limit
    assert found.top1_accuracy == pytest.approx(metrics.top1_accuracy)
    assert found.mean_confidence == pytest.approx(metrics.max_softmax)
    gaps = (found.share * (found.accuracy - found.confidence).abs()).nansum()
    assert float(gaps) == pytest.approx(metrics.ece)
    assert float(found.share.sum()) == pytest.approx(1)
    assert found.edges.tolist() == pytest.approx([i / 10 for i in range(11)])


def test_a_curve_by_hand():
    evaluation = Evaluation(bins=2)
    # Confidences of 0.9, 0.9 and exactly one half: that lies in the lower of two bins.
    logits = torch.tensor([[math.log(9), 0.0], [math.log(9), 0.0], [0.0, 0.0]], dtype=torch.float64)
    evaluation.update(logits, torch.tensor([0, 1, 1]))
    found = evaluation.reliability()
    assert found.share.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert found.accuracy.tolist() == pytest.approx([0, 0.5])
    assert found.confidence.tolist() == pytest.approx([0.5, 0.9])


def test_empty_bins_are_unknown():
    found = curve(classes=2)
    assert found.accuracy[:4].isnan().all()
    assert found.share[:4].sum() == 0


@pytest.mark.parametrize(("hits", "count"), [(0, 5), (3, 7), (50, 50), (412, 1000)])
def test_bands_are_wilson_intervals_as_in_scipy(hits, count):
    theirs = binomtest(hits, count).proportion_ci(method="wilson")
    low, high = wilson(torch.tensor(float(hits)).double(), torch.tensor(float(count)).double())
    assert (float(low), float(high)) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_the_average_over_runs_has_a_band_of_one_standard_deviation():
    curves = [curve(seed) for seed in range(4)]
    found = average(curves)
    stacked = torch.stack([each.accuracy for each in curves])
    known = ~stacked.isnan().any(0)
    torch.testing.assert_close(found.accuracy[known], stacked.mean(0)[known])
    torch.testing.assert_close((found.high - found.accuracy)[known], stacked.std(0)[known])
    assert found.runs == 4
    assert found.ece == pytest.approx(sum(each.ece for each in curves) / 4)
    assert "4 runs" in found.band
    assert average(curves[:1]) is curves[0]


def test_a_bin_that_some_runs_leave_empty_is_averaged_over_the_others():
    empty, full = (curve(n=3, seed=1), curve())
    found = average([empty, full])
    only = empty.accuracy.isnan() & ~full.accuracy.isnan()
    assert only.any()
    torch.testing.assert_close(found.accuracy[only], full.accuracy[only])


def test_a_bin_that_most_runs_leave_empty_is_left_empty():
    few, full = curve(n=3, seed=1), curve()
    only = few.accuracy.isnan() & ~full.accuracy.isnan()
    found = average([few, few, full])
    assert found.accuracy[only].isnan().all()
    assert found.confidence[only].isnan().all()
    assert float(found.share.sum()) == pytest.approx(1)


def test_curves_that_do_not_fit_together_are_named():
    other = Evaluation(bins=15)
    other.update(*predictions(50))
    with pytest.raises(ValueError, match=r"the same number of bins, got \[10, 15\]"):
        average([curve(), other.reliability()])
    with pytest.raises(ValueError, match="at least one curve"):
        average([])
    with pytest.raises(ValueError, match=r"expected curves of one run each, got averages of \[2, 1\] runs"):
        average([average([curve(), curve(1)]), curve()])


@pytest.mark.parametrize("broken", [{"share": "x"}, {"accuracy": [0.1]}, {"ece": [0.1]}, {"low": None}])
def test_data_that_is_no_curve_is_refused(broken):
    with pytest.raises(ValueError, match=f"expected {next(iter(broken))} of a curve"):
        calibration.ReliabilityCurve.from_dict(curve().as_dict() | broken)
