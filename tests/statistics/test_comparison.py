"""The verdict, the sentence and the record of a comparison."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from orthograd.statistics import (
    bootstrap_interval,
    cohens_d,
    compare,
    difference_interval,
    hedges_g,
    independent_power,
    paired_effect,
    paired_power,
    seeds_needed,
    t_test,
    tost,
    wilcoxon_test,
)

pytestmark = pytest.mark.filterwarnings("error")

BASELINE = [0.168, 0.171, 0.165, 0.169, 0.170]
LOWER = [0.161, 0.163, 0.160, 0.162, 0.164]
NOISY = [0.170, 0.166, 0.171, 0.164, 0.169]
NEARLY = [0.1679, 0.1708, 0.1649, 0.1688, 0.1699]
SAMPLE = st.lists(st.integers(-20, 20).map(lambda x: x / 10), min_size=2, max_size=6)


def leaves(value: Any) -> list[Any]:
    """Every value in nested dicts and lists."""
    if isinstance(value, (dict, list)):
        return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in leaves(part)]
    return [value]


@pytest.mark.parametrize(
    ("candidate", "options", "verdict"),
    [
        (LOWER, {"better": "lower"}, "better"),
        (LOWER, {"better": "higher"}, "worse"),
        (LOWER, {}, "lower"),
        (NOISY, {"better": "lower"}, "inconclusive"),
        (NOISY, {"better": "lower", "margin": 0.001}, "inconclusive"),
        (NOISY, {"better": "lower", "margin": 0.01}, "equivalent"),
        (NEARLY, {"better": "lower"}, "better"),
        (NEARLY, {"better": "lower", "margin": 0.001}, "equivalent"),
        (LOWER, {"better": "lower", "margin": 0.001}, "better"),
        (LOWER, {"better": "lower", "paired": False}, "better"),
        (NEARLY, {"better": "lower", "paired": False}, "inconclusive"),
        (LOWER, {"better": "lower", "alpha": 1e-6}, "inconclusive"),
    ],
)
def test_verdict(candidate: list[float], options: dict[str, Any], verdict: str) -> None:
    assert compare(BASELINE, candidate, **options).verdict == verdict


def test_a_candidate_that_is_higher() -> None:
    assert compare(LOWER, BASELINE).verdict == "higher"
    assert compare(LOWER, BASELINE, better="higher").verdict == "better"


def test_every_field_is_the_function_of_its_name() -> None:
    comparison = compare(BASELINE, LOWER, margin=0.01, alpha=0.1, resamples=99, seed=3)
    samples = BASELINE, LOWER
    assert (
        comparison.paired_interval == difference_interval(*samples, method="paired", alpha=0.1) == comparison.interval
    )
    assert comparison.welch_interval == difference_interval(*samples, method="welch", alpha=0.1)
    assert comparison.bootstrap_interval == bootstrap_interval(*samples, alpha=0.1, resamples=99, seed=3)
    assert comparison.cohens_d == cohens_d(*samples, alpha=0.1)
    assert comparison.hedges_g == hedges_g(*samples, alpha=0.1)
    assert comparison.paired_effect == paired_effect(*samples, alpha=0.1)
    assert comparison.student_test == t_test(*samples, method="student")
    assert comparison.welch_test == t_test(*samples, method="welch")
    assert comparison.paired_test == t_test(*samples, method="paired")
    assert comparison.wilcoxon_test == wilcoxon_test(*samples)
    assert comparison.equivalence == tost(*samples, margin=0.01, alpha=0.1)
    assert comparison.p == t_test(*samples).p


def test_without_pairs_welch_decides_and_nothing_is_paired() -> None:
    comparison = compare(BASELINE, LOWER[:4], paired=False, margin=0.01)
    assert (comparison.paired_interval, comparison.paired_effect, comparison.paired_test, comparison.wilcoxon_test) == (
        None,
    ) * 4
    assert comparison.interval == comparison.welch_interval
    assert comparison.p == comparison.welch_test.p
    assert comparison.equivalence == tost(BASELINE, LOWER[:4], margin=0.01, paired=False)


def test_sentences_state_the_result() -> None:
    better = compare(BASELINE, LOWER, metric="ece", better="lower").sentence
    assert better.startswith(
        "ece: the candidate is better than the baseline: lower by 0.0066 (mean 0.162 against 0.1686"
    )
    assert "5 paired seeds" in better
    assert "95% interval" in better
    inconclusive = compare(BASELINE, NOISY).sentence
    assert inconclusive.startswith("The candidate shows no significant difference")
    assert "equivalence was not tested" in inconclusive
    equivalent = compare(BASELINE, NEARLY, margin=0.001).sentence
    assert "equivalent to the baseline within ±0.001" in equivalent
    assert "significant, but smaller than the margin" in equivalent
    assert "significant, but smaller" not in compare(BASELINE, NOISY, margin=0.01).sentence
    assert "Welch's t-test" in compare(BASELINE, NOISY, paired=False).sentence


def test_the_printed_comparison_has_every_test() -> None:
    text = str(compare(BASELINE, LOWER))
    for name in ("paired t", "Wilcoxon", "Welch", "Student", "d = ", "g = ", "d_z = ", "bootstrap"):
        assert name in text
    assert "Wilcoxon" not in str(compare(BASELINE, LOWER, paired=False))


def test_the_record_is_json_with_all_of_it() -> None:
    comparison = compare(BASELINE, LOWER, metric="ece", better="lower", margin=0.001)
    record = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert (record["metric"], record["verdict"], record["sentence"]) == ("ece", "better", comparison.sentence)
    assert record["p"] == comparison.p
    assert record["cohens_d"]["exact"] == list(comparison.cohens_d.exact)
    assert record["equivalence"]["margin"] == 0.001


@pytest.mark.parametrize("paired", [True, False])
def test_samples_that_are_equal(paired: bool) -> None:
    comparison = compare([0.1, 0.1, 0.1], [0.1, 0.1, 0.1], paired=paired)
    assert (comparison.p, comparison.difference, comparison.cohens_d.value, comparison.hedges_g.value) == (1, 0, 0, 0)
    assert comparison.verdict == "inconclusive"
    assert "difference is zero" in comparison.sentence
    few, many = (compare([0.1] * n, [0.1] * n, paired=paired, margin=1e-3) for n in (2, 6))
    assert (few.verdict, many.verdict) == ("inconclusive", "equivalent")  # two seeds that agree are no proof


@pytest.mark.parametrize(("paired", "infinite"), [(True, "d_z infinite"), (False, "d infinite")])
def test_a_difference_without_spread_is_said_to_be_so(paired: bool, infinite: str) -> None:
    comparison = compare([2, 2, 2], [3, 3, 3], paired=paired)
    assert (comparison.p, comparison.cohens_d.value, comparison.verdict) == (
        0.25 if paired else 0.1,
        math.inf,
        "inconclusive",
    )
    assert infinite in comparison.sentence
    assert "rank test p = " in comparison.sentence
    assert f"takes {6 if paired else 4} " in comparison.sentence
    enough = compare([2] * 6, [3] * 6, paired=paired)
    assert (enough.p, enough.verdict) == (
        binomtest(6, 6).pvalue if paired else 2 / math.comb(12, 6),
        "higher",
    )
    assert comparison.as_dict()["cohens_d"] == {"value": "inf", "exact": ["inf", "inf"], "normal": ["inf", "inf"]}


def test_a_constant_shift_is_no_spread_whatever_the_rounding() -> None:
    comparison = compare([0.3, 0.4, 0.7], [0.2, 0.3, 0.6], better="lower")
    assert (comparison.p, comparison.verdict, comparison.bootstrap_interval) == (
        0.25,
        "inconclusive",
        comparison.interval,
    )


@given(SAMPLE, SAMPLE, st.booleans(), st.sampled_from([None, 0.5]))
@settings(max_examples=60)
def test_no_input_makes_nan_or_a_warning(
    one: list[float], two: list[float], paired: bool, margin: float | None
) -> None:
    assume(not paired or len(one) == len(two))
    comparison = compare(one, two, paired=paired, margin=margin, resamples=50)
    record = comparison.as_dict()
    json.dumps(record, allow_nan=False)
    needs_pairs = {"paired_interval", "paired_effect", "paired_test", "wilcoxon_test"}
    missing = {key for key, value in record.items() if value is None}
    allowed = {"metric", "better", "corrected_p", "corrected_equivalence_p"}
    if abs((comparison.paired_effect or comparison.cohens_d).value) < 1e-3:
        allowed.add("seeds_needed")
    assert missing == allowed | (set() if paired else needs_pairs) | ({"equivalence"} if margin is None else set())
    assert "nan" not in str(leaves(record))


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=2, max_size=6))
@settings(max_examples=25)
def test_swapping_the_samples_swaps_the_verdict(pairs: list[tuple[int, int]]) -> None:
    one, two = (list(map(float, sample)) for sample in zip(*pairs, strict=True))
    comparison, swapped = (compare(*samples, better="lower", resamples=20) for samples in ((one, two), (two, one)))
    opposite = {"better": "worse", "worse": "better", "inconclusive": "inconclusive"}
    assert swapped.verdict == opposite[comparison.verdict]
    assert swapped.difference == pytest.approx(-comparison.difference)


def test_differences_and_effects_are_candidate_minus_baseline() -> None:
    lower = compare(BASELINE, LOWER, better="lower", margin=0.001)
    effects = lower.cohens_d, lower.hedges_g, lower.paired_effect
    tests = lower.student_test, lower.welch_test, lower.paired_test
    intervals = lower.interval, lower.welch_interval, lower.bootstrap_interval, lower.equivalence.interval
    assert all(value < 0 for value in (lower.difference, *(e.value for e in effects), *(t.statistic for t in tests)))
    assert all(interval.high < 0 for interval in (*intervals, *(effect.exact for effect in effects)))
    assert lower.equivalence.p_below > 0.5 > lower.equivalence.p_above
    assert "95% interval of candidate − baseline -0." in lower.sentence


def test_numpy_and_integers_are_welcome() -> None:
    comparison = compare(np.array([1, 2, 4]), np.array([1, 3, 3], dtype=np.float32))
    assert comparison.difference == pytest.approx(0)
    assert comparison == compare([1, 2, 4], [1.0, 3.0, 3.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"better": "smaller"}, 'better "lower", "higher" or None, got \'smaller\''),
        ({"alpha": 0}, "alpha between 0 and 1, got 0"),
        ({"margin": -0.1}, r"margin > 0, got -0\.1"),
        ({"resamples": 0}, "at least 1 resample, got 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare([1, 2], [2, 4], **options)


def test_samples_of_different_length_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="got 3 baseline, 2 candidate"):
        compare([1, 2, 3], [1, 2])


def test_a_comparison_knows_its_power_and_the_seeds_that_would_be_needed():
    baseline, candidate = [1.0, 2.0, 3.0, 4.0, 5.0], [0.8, 2.1, 2.5, 4.2, 4.6]
    paired, independent = compare(baseline, candidate), compare(baseline, candidate, paired=False)
    assert paired.achieved_power == paired_power(paired.paired_effect.value, 5)
    assert independent.achieved_power == independent_power(independent.cohens_d.value, 5)
    assert paired.seeds_needed == seeds_needed(paired.paired_effect.value)
    assert f"takes {paired.seeds_needed:,} pairs" in paired.sentence
    assert independent.seeds_needed > 10 * paired.seeds_needed  # what pairing is for
    assert f"takes {independent.seeds_needed:,} seeds per method" in independent.sentence
    same = compare(baseline, baseline)
    assert same.seeds_needed is None
    assert same.achieved_power == pytest.approx(0.05)
    shifted = compare(baseline, [x + 1 for x in baseline])
    assert (shifted.achieved_power, shifted.seeds_needed) == (0.0, 6)
    assert same.as_dict()["seeds_needed"] is None
    assert "seeds for power 0.80" in str(paired)
