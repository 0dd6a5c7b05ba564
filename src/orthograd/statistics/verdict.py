"""What a comparison comes to, in one word and in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .wording import ends, number, percent, probability

if TYPE_CHECKING:
    from .comparison import Comparison

Direction = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "lower", "higher", "equivalent", "undecided"]


def verdict_of(*, difference: float, is_significant: bool, is_equivalent: bool, better: Direction | None) -> Verdict:
    """Of the candidate against the baseline, where the difference is baseline − candidate.

    Equivalence comes first: a difference within the margin does not matter, even where it is significant. What is
    neither is undecided, never equal.

    >>> verdict_of(difference=0.2, is_significant=True, is_equivalent=False, better="lower")
    'better'
    >>> verdict_of(difference=0.2, is_significant=False, is_equivalent=False, better="lower")
    'undecided'
    """
    if is_equivalent:
        return "equivalent"
    if not is_significant:
        return "undecided"
    candidate_is: Direction = "lower" if difference > 0 else "higher"
    if better is None:
        return candidate_is
    return "better" if candidate_is == better else "worse"


def sentence_of(found: Comparison) -> str:
    """The verdict of a comparison in plain words, with its numbers."""
    subject = f"{found.metric}: the candidate" if found.metric else "The candidate"
    return f"{subject} {_claim(found)} ({_means(found)}; {_evidence(found)}).{_remark(found)}"


def _claim(found: Comparison) -> str:
    if found.verdict == "equivalent":
        return f"is equivalent to the baseline within ±{number(found.margin or 0)}"
    if found.verdict == "undecided":
        return "shows no significant difference from the baseline, which leaves the question undecided"
    direction = "lower" if found.difference > 0 else "higher"
    by = f"by {number(abs(found.difference))}"
    if found.verdict == direction:
        return f"is {direction} than the baseline {by}"
    return f"is {found.verdict} than the baseline: {direction} {by}"


def _means(found: Comparison) -> str:
    return f"mean {number(found.candidate.mean)} against {number(found.baseline.mean)}, {_seeds(found)}"


def _seeds(found: Comparison) -> str:
    if found.paired:
        return f"{found.baseline.n} pairs of seeds"
    return f"{found.candidate.n} against {found.baseline.n} seeds"


def _evidence(found: Comparison) -> str:
    test = "paired t-test" if found.paired else "Welch's t-test"
    if found.has_no_spread and found.difference:
        test = "test by ranks"
    interval = f"{percent(1 - found.alpha)} interval of baseline − candidate {ends(found.interval)}"
    return f"{interval}; {test} p = {_p(found.p, found.corrected_p)}; d = {number(found.cohens_d.value)}"


def _p(p: float, corrected: float | None) -> str:
    return probability(p) if corrected is None else f"{probability(p)}, {probability(corrected)} after Holm"


def _remark(found: Comparison) -> str:
    remarks = []
    if found.equivalence is not None:
        assert found.equivalence_p is not None
        p = _p(found.equivalence_p, found.corrected_equivalence_p)
        remarks.append(f"TOST p = {p}; {percent(1 - 2 * found.alpha)} interval {ends(found.equivalence.interval)}.")
    elif found.verdict == "undecided":
        remarks.append("No margin was stated, so equivalence was not tested.")
    if found.verdict == "undecided" and found.seeds_needed is not None:
        unit = "pairs" if found.paired else "seeds in each arm"
        remarks.append(f"To find a difference of this size four times in five takes {found.seeds_needed:,} {unit}.")
    if found.verdict == "equivalent" and found.is_significant:
        remarks.append("The difference is significant all the same, but smaller than the margin.")
    if found.has_no_spread:
        remarks.append(_without_spread(found))
    return "".join(f" {remark}" for remark in remarks)


def _without_spread(found: Comparison) -> str:
    what = "the same in every pair" if found.paired else "without any spread, as neither arm varies over its seeds"
    if found.difference == 0:
        return f"The difference is zero and {what}."
    effect = "d_z" if found.paired else "d"
    return f"The difference is {what}, which makes {effect} infinite; p is the least that ranks can give."
