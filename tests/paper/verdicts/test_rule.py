"""The rule behind the verdicts: each verdict can be reached, "not reproduced" above all, and chance gives few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, Scale
from orthograd.paper.verdicts.claims import sections
from orthograd.paper.verdicts.numbers import VERDICTS, Answer
from orthograd.paper.verdicts.rule import (
    DRAWS,
    Claim,
    Estimate,
    difference_estimates,
    mean_estimates,
    verdict_on,
    without_effect,
)
from orthograd.statistics import compare

RECORDS = Path(__file__).parents[3] / "docs/results/reproduction"
LOWER = Claim("lower", size=-1.0, rounding=0.01, seeds=20)
HIGHER = Claim("higher", size=1.0, rounding=0.01, seeds=20)


def estimate(value, error=0.1, n=20):
    return Estimate(value, error, n, spread=error * n**0.5)


@pytest.mark.parametrize(
    ("claim", "ours", "expected"),
    [
        (LOWER, estimate(-0.8), "reproduced"),
        (LOWER, estimate(-5.0), "reproduced"),  # the effect is there, of another size
        (LOWER, estimate(0.8), "not reproduced"),  # the opposite
        (LOWER, estimate(0.0), "not reproduced"),  # no difference, and the power to see −1
        (LOWER, estimate(0.0, error=2.0), "compatible"),  # no difference, and no power
        (HIGHER, estimate(0.8), "reproduced"),
        (HIGHER, estimate(-0.8), "not reproduced"),
        (Claim(None, size=-1.0, seeds=20), estimate(-0.9), "compatible"),  # nothing is claimed, so no effect to find
        (Claim(None, size=-1.0, seeds=20), estimate(-5.0), "not reproduced"),
        # Not claimed, and within the range, but our interval lies on the other side of zero.
        (Claim(None, size=0.46, rounding=0.01, seeds=5), estimate(-2.77, error=0.88, n=10), "not reproduced"),
        (Claim(None, size=-0.02, rounding=0.01, seeds=5), estimate(0.046, error=0.016, n=10), "not reproduced"),
        (
            Claim(None, size=-0.2, rounding=0.01, seeds=5),
            estimate(-0.67, error=0.19, n=10),
            "compatible",
        ),  # the same side
        (
            Claim(None, size=-0.01, rounding=0.02, seeds=5),
            estimate(0.1, error=0.04, n=10),
            "compatible",
        ),  # its side is lost
        (Claim("lower"), estimate(0.0), "compatible"),  # without a size nothing is excluded
        (Claim("equal", margin=1.0), estimate(0.1), "reproduced"),
        (Claim("equal", margin=1.0), estimate(0.1, error=2.0), "compatible"),
        (Claim("equal", margin=1.0), estimate(3.0), "not reproduced"),
        (Claim("equal"), estimate(0.1), "compatible"),  # without a margin nothing is equal
        (Claim("lower", size=0.5, rounding=0.1), estimate(-0.8), "contradicted by its own numbers"),
        (Claim("higher", size=-0.5, rounding=0.1), estimate(0.8), "contradicted by its own numbers"),
        (Claim("higher", size=-0.5, rounding=0.6), estimate(0.8), "reproduced"),  # the sign is lost in rounding
        (Claim("lower", size=0.0, rounding=0.1), estimate(-0.8), "contradicted by its own numbers"),  # equal means
    ],
)
def test_every_verdict_can_be_reached(claim, ours, expected):
    assert verdict_on(claim, ours) == expected


def test_a_mean_is_never_reproduced():
    values = np.random.default_rng(0).normal(5.0, 1.0, (200, 10))
    verdicts = {verdict_on(Claim(None, size, seeds=5), each) for size in (5.0, 9.0) for each in mean_estimates(values)}
    assert verdicts == {"compatible", "not reproduced"}


def test_the_expected_range_holds_19_of_20_means_and_differences():
    generator = np.random.default_rng(0)
    draws, n, seeds = 4000, 5, 3
    ours = mean_estimates(generator.normal(size=(draws, n)))
    theirs = generator.normal(size=(draws, seeds)).mean(axis=1)
    hits = np.mean([value in each.expected(seeds) for value, each in zip(theirs, ours, strict=True)])
    assert abs(hits - 0.95) < 0.015
    ours = difference_estimates(*generator.normal(size=(2, draws, n)))
    theirs = np.subtract(*generator.normal(size=(2, draws, seeds)).mean(axis=2))
    hits = np.mean([value in each.expected(seeds) for value, each in zip(theirs, ours, strict=True)])
    assert 0.94 < hits < 0.985  # the spread of single differences has more degrees of freedom than n − 1


def test_the_expected_range_by_hand_and_widened_by_rounding():
    low, high = mean_estimates(np.array([[1.0, 2.0, 3.0]]))[0].expected(6, rounding=0.5)
    half = stats.t.ppf(0.975, 2) * 1.0 * (1 / 3 + 1 / 6) ** 0.5 + 0.5
    assert (low, high) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_a_difference_is_that_of_compare():
    generator = np.random.default_rng(3)
    baseline, candidate = generator.normal(size=(2, 1, 8))
    (ours,), same = difference_estimates(baseline, candidate), compare(baseline[0], candidate[0])
    assert abs(ours.value) == pytest.approx(abs(same.difference))
    assert ours.value == pytest.approx(candidate.mean() - baseline.mean())
    assert ours.interval.high - ours.interval.low == pytest.approx(same.interval.high - same.interval.low)
    assert ours.is_significant == (same.p < 0.05)


@pytest.mark.parametrize(("seeds", "expected"), [(3, False), (6, True)])
def test_differences_without_spread_need_six_seeds(seeds, expected):
    (ours,) = difference_estimates(np.full((1, seeds), 0.3), np.full((1, seeds), 0.2))
    assert ours.error == 0
    assert ours.is_significant is expected
    (same,) = difference_estimates(np.full((1, seeds), 0.3), np.full((1, seeds), 0.3))
    assert not same.is_significant


def test_without_effect_the_rule_reproduces_about_one_claim_in_forty():
    generator = np.random.default_rng(1)
    methods = generator.normal(size=20), generator.normal(size=20) - 3.0
    drawn = difference_estimates(*without_effect(methods))
    counts = {verdict: sum(verdict_on(LOWER, each) == verdict for each in drawn) / DRAWS for verdict in VERDICTS}
    assert counts["reproduced"] == pytest.approx(0.025, abs=0.025)
    assert counts["not reproduced"] > 0.1
    assert drawn == difference_estimates(*without_effect(methods))  # the same draws each time


@pytest.fixture(scope="module")
def answers():
    evidence = Evidence.of(Scale(), folder=RECORDS)
    names = ("table1", "extended", "wideresnet", "resnet50")
    return {
        name: Answer(
            sections()[str(EXPERIMENTS[name].answers)], evidence.pair(EXPERIMENTS[name]), ("baseline", "candidate")
        )
        for name in names
    }


@pytest.mark.slow
def test_on_our_records_the_rule_can_fail_and_chance_gives_next_to_nothing(answers):
    """The reproduction is worth something only if ⊥Grad doing nothing would have been seen."""
    for name, answer in answers.items():
        tally = answer.tally("claimed")
        claimed = sum(count for count, _ in tally.values())
        assert sum(expected for _, expected in tally.values()) == pytest.approx(claimed)
        assert tally["reproduced"][1] < 0.1 * claimed, name
    assert answers["table1"].tally("claimed")["not reproduced"][1] > 2
    assert answers["table1"].tally("claimed")["reproduced"][0] == 5
    assert answers["resnet50"].tally("claimed")["reproduced"][0] == 0
    assert answers["resnet50"].tally("claimed")["not reproduced"][0] >= 4


def test_no_difference_is_compatible_with_its_opposite(answers):
    """On ResNet-50 accuracy falls and the Brier score rises, where the paper prints the other signs."""
    for answer in answers.values():
        for row in answer.section.rows:
            claim, ours = answer.claims(row)["difference"], answer.estimate(row, "difference")
            if abs(claim.size) > claim.rounding and ours.is_significant and claim.size * ours.value < 0:
                assert answer.verdict(row, "difference") != "compatible", row.quantity
    (row,) = (row for row in answers["resnet50"].section.rows if row.quantity == "clean.top1_accuracy")
    assert answers["resnet50"].verdict(row, "difference") == "not reproduced"


def test_swapped_methods_are_not_reproduced(answers):
    """Table 1 with SGD and ⊥Grad exchanged: the paper's effects are then the opposite of ours."""
    answer = answers["table1"]
    for row in answer.section.rows:
        ours, claim = answer.comparisons[row.quantity], answer.claims(row)["difference"]
        if claim.says is not None:
            (swapped,) = difference_estimates(np.array([ours.candidate_values]), np.array([ours.baseline_values]))
            assert answer.verdict(row, "difference") == "reproduced"
            assert verdict_on(claim, swapped) == "not reproduced"
