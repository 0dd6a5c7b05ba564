"""The verdict of a comparison in one word and in one sentence, and its numbers as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from .difference import Interval

if TYPE_CHECKING:
    from .comparison import Comparison

Direction = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "lower", "higher", "equivalent", "inconclusive"]


def verdict_of(*, difference: float, is_significant: bool, is_equivalent: bool, better: Direction | None) -> Verdict:
    """The verdict on the candidate; the difference is candidate − baseline.

    Equivalence comes first: a difference within the margin does not matter, even if it is significant. Neither
    equivalent nor significant is inconclusive.

    >>> verdict_of(difference=-0.2, is_significant=True, is_equivalent=False, better="lower")
    'better'
    >>> verdict_of(difference=-0.2, is_significant=False, is_equivalent=False, better="lower")
    'inconclusive'
    """
    if is_equivalent:
        return "equivalent"
    if not is_significant:
        return "inconclusive"
    candidate_is: Direction = "lower" if difference < 0 else "higher"
    if better is None:
        return candidate_is
    return "better" if candidate_is == better else "worse"


def sentence_of(comparison: Comparison) -> str:
    """The verdict of a comparison as a sentence, with its statistics."""
    subject = f"{comparison.metric}: the candidate" if comparison.metric else "The candidate"
    return f"{subject} {_claim(comparison)} ({_means(comparison)}; {_evidence(comparison)}).{_remark(comparison)}"


def _claim(comparison: Comparison) -> str:
    if comparison.verdict == "equivalent":
        return f"is equivalent to the baseline within ±{number(comparison.margin or 0)}"
    if comparison.verdict == "inconclusive":
        return "shows no significant difference from the baseline: inconclusive"
    direction = "lower" if comparison.difference < 0 else "higher"
    by = f"by {number(abs(comparison.difference))}"
    if comparison.verdict == direction:
        return f"is {direction} than the baseline {by}"
    return f"is {comparison.verdict} than the baseline: {direction} {by}"


def _means(comparison: Comparison) -> str:
    return f"mean {number(comparison.candidate.mean)} against {number(comparison.baseline.mean)}, {_seeds(comparison)}"


def _seeds(comparison: Comparison) -> str:
    if comparison.paired:
        return f"{comparison.baseline.n} paired seeds"
    return f"{comparison.candidate.n} against {comparison.baseline.n} seeds"


def _evidence(comparison: Comparison) -> str:
    test = "paired t-test" if comparison.paired else "Welch's t-test"
    if comparison.has_no_spread and comparison.difference:
        test = "rank test"
    interval = f"{percent(1 - comparison.alpha)} interval of candidate − baseline {ends(comparison.interval)}"
    return f"{interval}; {test} p = {_p(comparison.p, comparison.corrected_p)}; d = {number(comparison.cohens_d.value)}"


def _p(p: float, corrected: float | None) -> str:
    return probability(p) if corrected is None else f"{probability(p)}, {probability(corrected)} after Holm"


def _remark(comparison: Comparison) -> str:
    remarks = []
    if comparison.equivalence is not None:
        assert comparison.equivalence_p is not None
        p = _p(comparison.equivalence_p, comparison.corrected_equivalence_p)
        remarks.append(
            f"TOST p = {p}; {percent(1 - 2 * comparison.alpha)} interval {ends(comparison.equivalence.interval)}."
        )
    elif comparison.verdict == "inconclusive":
        remarks.append("No margin was stated, so equivalence was not tested.")
    if comparison.verdict == "inconclusive" and comparison.seeds_needed is not None:
        unit = "pairs" if comparison.paired else "seeds per method"
        remarks.append(f"Detecting a difference of this size with power 0.8 takes {comparison.seeds_needed:,} {unit}.")
    if comparison.verdict == "equivalent" and comparison.is_significant:
        remarks.append("The difference is significant, but smaller than the margin.")
    if comparison.has_no_spread:
        remarks.append(_without_spread(comparison))
    return "".join(f" {remark}" for remark in remarks)


def _without_spread(comparison: Comparison) -> str:
    what = "the same in every pair" if comparison.paired else "without spread, as neither method varies over its seeds"
    if comparison.difference == 0:
        return f"The difference is zero and {what}."
    effect = "d_z" if comparison.paired else "d"
    return f"The difference is {what}, which makes {effect} infinite; p is the smallest of a rank test."


def number(value: float) -> str:
    """A number with four significant digits.

    >>> number(0.16849), number(float("-inf"))
    ('0.1685', '-inf')
    """
    return f"{value:.4g}"


def probability(p: float, *, level: float = 0.05) -> str:
    """A p-value with two significant digits, or more where these hide on which side of the level it lies.

    >>> probability(0.0312), probability(0.0), probability(0.0497), probability(0.05003)
    ('0.031', '0', '0.0497', '0.05003')
    """
    texts = (f"{p:.{digits}g}" for digits in range(2, 18))
    return next(
        (text for text in texts if (float(text) < level, float(text) > level) == (p < level, p > level)), str(p)
    )


def ends(interval: Interval) -> str:
    """Both ends of an interval.

    >>> ends(Interval(-0.5, 1.25))
    '-0.5 to 1.25'
    """
    return f"{number(interval.low)} to {number(interval.high)}"


def percent(fraction: float) -> str:
    """A confidence level in percent.

    >>> percent(1 - 0.05)
    '95%'
    """
    return f"{100 * fraction:.4g}%"


def json_safe(value: Any) -> Any:
    """A value for JSON: dataclasses as dicts, intervals as lists, infinity as "inf" or "-inf".

    >>> json_safe({"ends": Interval(1.0, float("inf"))})
    {'ends': [1.0, 'inf']}
    """
    if is_dataclass(value):
        return {field.name: json_safe(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_safe(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [json_safe(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
