"""Bootstrap intervals: those of scipy where scipy can, and they cover what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from orthograd import calibration
from orthograd.calibration import difference_intervals, intervals
from orthograd.calibration.bootstrap import RESAMPLED, difference_intervals_probabilities, intervals_probabilities
from tests.calibration.samples import predictions


def test_the_interval_of_a_mean_is_that_of_scipy():
    logits, labels = predictions(400)
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none").numpy()
    theirs = scipy.stats.bootstrap((losses,), np.mean, n_resamples=20000, rng=0).confidence_interval
    ours = intervals(logits, labels, metrics=["loss"], resamples=20000)["loss"]
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.03 * width)


def test_the_interval_of_a_correlation_is_that_of_scipy():
    logits, labels = predictions(300)
    confidence, correct = logits.softmax(1).amax(1).numpy(), (logits.argmax(1) == labels).numpy().astype(float)

    def correlation(c, a, axis):
        c, a = c - c.mean(axis, keepdims=True), a - a.mean(axis, keepdims=True)
        return (c * a).mean(axis) / np.sqrt((c * c).mean(axis) * (a * a).mean(axis))

    theirs = scipy.stats.bootstrap(
        (confidence, correct), correlation, paired=True, vectorized=True, n_resamples=10000, rng=0
    ).confidence_interval
    name = "confidence_accuracy_correlation"
    ours = intervals(logits, labels, metrics=[name], resamples=10000)[name]
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.05 * (theirs.high - theirs.low))


def test_intervals_hold_the_number_they_belong_to_and_repeat_with_their_seed():
    logits, labels = predictions(500)
    found = intervals(logits, labels, resamples=300)
    point = calibration.evaluate(logits, labels)
    assert set(found) == set(RESAMPLED)
    for name, (low, high) in found.items():
        if name not in ("ece", "mce", "ece_l2", "ece_debiased"):  # resampling adds to those, so theirs lie lower
            assert low <= getattr(point, name) <= high, name
    assert found == intervals(logits, labels, resamples=300)
    assert found != intervals(logits, labels, resamples=300, seed=1)
    narrower = intervals(logits, labels, resamples=300, level=0.5)
    assert all(high - low < found[name][1] - found[name][0] for name, (low, high) in narrower.items())


def test_ninety_percent_intervals_cover_the_truth_about_that_often():
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(20000, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    truth = calibration.evaluate(logits, labels, metrics=["loss", "brier", "top1_accuracy"]).as_row()
    hits = dict.fromkeys(truth, 0)
    for part in range(150):
        rows = torch.randint(20000, (100,), generator=generator)
        found = intervals(logits[rows], labels[rows], metrics=list(truth), resamples=300, level=0.9, seed=part)
        for name, (low, high) in found.items():
            hits[name] += low <= truth[name] <= high
    for name, count in hits.items():
        assert abs(count / 150 - 0.9) < 3.5 * math.sqrt(0.09 / 150), name


def test_differences_are_paired():
    logits, labels = predictions(500)
    low, high = difference_intervals(logits, logits / 2, labels, metrics=["loss"], resamples=500)["loss"]
    alone = intervals(logits, labels, metrics=["loss"], resamples=500)["loss"]
    point = calibration.evaluate(logits, labels).loss - calibration.evaluate(logits / 2, labels).loss
    assert low < point < high
    assert high - low < alone[1] - alone[0]


def test_probabilities_have_the_same_intervals():
    logits, labels = predictions(200)
    names = ["loss", "ece", "brier"]
    for ours, theirs in (
        (
            intervals(logits, labels, metrics=names, resamples=100),
            intervals_probabilities(logits.softmax(1), labels, metrics=names, resamples=100),
        ),
        (
            difference_intervals(logits, logits / 2, labels, metrics=names, resamples=100),
            difference_intervals_probabilities(
                logits.softmax(1), (logits / 2).softmax(1), labels, metrics=names, resamples=100
            ),
        ),
    ):
        for name in names:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-9)


def test_portions_do_not_matter_to_what_is_left_out(monkeypatch):
    logits, labels = predictions(300)
    whole = intervals(logits, labels, metrics=["brier"], resamples=64)["brier"]
    monkeypatch.setattr("orthograd.calibration.bootstrap.AT_ONCE", 300 * 64)
    assert intervals(logits, labels, metrics=["brier"], resamples=64)["brier"] == pytest.approx(whole)


def test_what_is_undefined_or_the_same_in_every_resample_has_no_interval():
    logits, labels = torch.tensor([[2.0, 0.0]] * 20), torch.zeros(20, dtype=torch.long)
    found = intervals(logits, labels, resamples=20)
    assert set(found) == {"top1_accuracy", "top5_accuracy"}
    assert found["top5_accuracy"] == (100, 100)  # of two classes the label is always among the highest five
    assert difference_intervals(logits, logits, labels, resamples=20) == {}
    infinite = intervals_probabilities(torch.tensor([[1.0, 0.0]] * 3), torch.tensor([1, 0, 0]), resamples=20)
    assert infinite["loss"] == (math.inf, math.inf)  # an event that was given none has happened


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("right", "n"), [(20, 20), (0, 20), (13, 20), (1, 1), (999, 1000)])
def test_accuracies_have_the_wilson_intervals_of_scipy(right, n, level):
    labels = torch.arange(n) >= right  # class 0 is predicted
    logits = torch.tensor([[2.0, 0.0, -1.0, -2.0, -3.0, -4.0]]).repeat(n, 1)
    theirs = scipy.stats.binomtest(right, n).proportion_ci(level, method="wilson")
    ours = intervals(logits, 5 * labels.long(), resamples=20, level=level)
    for name in ("top1_accuracy", "top5_accuracy"):
        assert ours[name] == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=1e-9)
    low, high = ours["top1_accuracy"]
    assert 0 <= low <= 100 * right / n <= high <= 100


def test_the_intervals_of_accuracies_cover_the_truth_where_those_of_a_bootstrap_do_not():
    """At an accuracy of 97%, 20 of 20 are correct in 54% of test sets; the bootstrap then gives [100, 100]."""
    covered = 0.0
    for right in range(21):
        logits, labels = torch.tensor([[2.0, 0.0]]).repeat(20, 1), (torch.arange(20) >= right).long()
        low, high = intervals(logits, labels, metrics=["top1_accuracy"], resamples=2)["top1_accuracy"]
        covered += float(scipy.stats.binom.pmf(right, 20, 0.97)) * (low <= 97 <= high)
    assert covered > 0.95


def test_a_difference_is_no_difference_where_only_rounding_makes_one():
    logits, labels = predictions(300)
    same = (logits * 3) / 3
    assert difference_intervals(logits, same, labels, metrics=["loss", "brier"], resamples=50) == {}


@pytest.mark.parametrize(("option", "value"), [("resamples", 1), ("level", 0.0), ("level", 1.0)])
def test_impossible_options_are_named(option, value):
    with pytest.raises(ValueError, match=rf"got .*{value}"):
        intervals(*predictions(20), **{option: value})
    with pytest.raises(TypeError, match="resampels"):
        intervals(*predictions(20), resampels=3)
    for wrong in ({"resamples": 20.0}, {"resamples": "20"}, {"resamples": True}, {"seed": 1.5}, {"seed": "0"}):
        with pytest.raises(TypeError, match=rf"expected {next(iter(wrong))} as an integer, got"):
            intervals(*predictions(20), **wrong)
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=f"a seed of 64 bits, got {seed}"):
            intervals(*predictions(20), seed=seed)
    broken, labels = predictions(20)
    broken[2, 1] = math.nan
    with pytest.raises(ValueError, match="got nan in row 2"):
        intervals(broken, labels)


def test_differences_of_multiple_choice_are_paired_whatever_the_numbers_of_choices():
    """The second model has other numbers of choices, but rows are as hard for both; a choice at −99 changes nothing."""
    logits, labels = predictions(400, 4)
    ragged = [torch.cat([row, row.new_full((k % 3,), -99.0)]) for k, row in enumerate(logits)]
    settings = {"task": "multiple_choice", "metrics": ["loss", "ece"], "resamples": 100}
    low, high = difference_intervals(list(logits / 2), ragged, labels, **settings)["loss"]
    expected = difference_intervals(logits / 2, logits, labels, metrics=["loss", "ece"], resamples=100)
    assert (low, high) == pytest.approx(expected["loss"], rel=1e-6)


def test_metrics_without_intervals_are_refused_by_name():
    with pytest.raises(ValueError, match=r"expected metrics among top1_accuracy.*got smooth_ece, aurc, without"):
        intervals(*predictions(20), metrics=["ece", "aurc", "smooth_ece"])


@pytest.mark.parametrize("options", [{"weights": torch.ones(3)}, {"ignore_index": -100}, {"resample": 10}])
def test_unknown_options_are_named_before_the_input_is_looked_at(options):
    (name,) = options
    with pytest.raises(TypeError, match=rf"expected options among bins, .*, got {name}"):
        intervals(torch.randn(3, 2), torch.tensor([0, 1, -100]), **options)
