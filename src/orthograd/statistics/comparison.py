"""Two methods compared over seeds in one metric: every statistic, a verdict, and a sentence."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from .difference import Interval, bootstrap_interval, difference_interval
from .effect import EffectSize, cohens_d, hedges_g, paired_effect
from .hypothesis import Equivalence, SignificanceTest, least_p, t_test, wilcoxon_test
from .power import independent_power, paired_power, seeds_needed
from .samples import Moments, TwoSamples, two_samples
from .verdict import Direction, Verdict, ends, json_safe, number, percent, probability, verdict_of

RECORDED = (
    *("metric", "paired", "better", "alpha", "baseline", "candidate", "difference"),
    *("paired_interval", "welch_interval", "bootstrap_interval", "cohens_d", "hedges_g", "paired_effect"),
    *("student_test", "welch_test", "paired_test", "wilcoxon_test", "equivalence"),
    *("corrected_p", "corrected_equivalence_p", "p", "interval", "achieved_power", "seeds_needed"),
    *("verdict", "sentence"),
)
"""The fields of a comparison's record, in order."""


@dataclass(frozen=True)
class Comparison:
    """The candidate compared with the baseline in one metric. Differences and effects are candidate − baseline.

    Statistics are computed when they are first read. Paired statistics are None where ``paired`` is False.
    ``corrected_p`` and ``corrected_equivalence_p`` have Holm's correction over the metrics of a `ComparisonTable`, and
    are None outside one. Intervals are not corrected.
    """

    metric: str | None
    paired: bool
    better: Direction | None
    alpha: float
    baseline_values: tuple[float, ...]
    candidate_values: tuple[float, ...]
    equivalence: Equivalence | None
    resamples: int = 9999
    seed: int = 0
    corrected_p: float | None = None
    corrected_equivalence_p: float | None = None

    @cached_property
    def _samples(self) -> TwoSamples:
        return two_samples(self.baseline_values, self.candidate_values, paired=self.paired)

    @property
    def _both(self) -> tuple[ArrayLike, ArrayLike]:
        return self._samples.baseline, self._samples.candidate

    @property
    def baseline(self) -> Moments:
        """Number of seeds, mean and standard deviation of the baseline."""
        return self._samples.moments[0]

    @property
    def candidate(self) -> Moments:
        """Number of seeds, mean and standard deviation of the candidate."""
        return self._samples.moments[1]

    @property
    def difference(self) -> float:
        """Mean of the candidate − mean of the baseline."""
        return self._samples.difference

    @cached_property
    def paired_interval(self) -> Interval | None:
        """The t interval of the mean paired difference."""
        return difference_interval(*self._both, method="paired", alpha=self.alpha) if self.paired else None

    @cached_property
    def welch_interval(self) -> Interval:
        """Welch's t interval of the difference, which ignores the pairs."""
        return difference_interval(*self._both, method="welch", alpha=self.alpha)

    @cached_property
    def bootstrap_interval(self) -> Interval:
        """The BCa bootstrap interval of the difference, see `orthograd.statistics.bootstrap_interval`."""
        return bootstrap_interval(
            *self._both, paired=self.paired, alpha=self.alpha, resamples=self.resamples, seed=self.seed
        )

    @cached_property
    def cohens_d(self) -> EffectSize:
        """Cohen's d: the difference in pooled standard deviations."""
        return cohens_d(*self._both, alpha=self.alpha)

    @cached_property
    def hedges_g(self) -> EffectSize:
        """Hedges' g: Cohen's d corrected for small samples."""
        return hedges_g(*self._both, alpha=self.alpha)

    @cached_property
    def paired_effect(self) -> EffectSize | None:
        """d_z: the mean paired difference in standard deviations of the differences."""
        return paired_effect(*self._both, alpha=self.alpha) if self.paired else None

    @cached_property
    def student_test(self) -> SignificanceTest:
        """Student's t-test of independent samples, which assumes equal variances."""
        return t_test(*self._both, method="student")

    @cached_property
    def welch_test(self) -> SignificanceTest:
        """Welch's t-test of independent samples."""
        return t_test(*self._both, method="welch")

    @cached_property
    def paired_test(self) -> SignificanceTest | None:
        """The paired t-test."""
        return t_test(*self._both, method="paired") if self.paired else None

    @cached_property
    def wilcoxon_test(self) -> SignificanceTest | None:
        """Wilcoxon's signed-rank test."""
        return wilcoxon_test(*self._both) if self.paired else None

    @property
    def interval(self) -> Interval:
        """The paired interval of the difference, or Welch's where there are no pairs."""
        return self.paired_interval or self.welch_interval

    @property
    def p(self) -> float:
        """The p-value of the paired t-test, or of Welch's where there are no pairs.

        Without spread a t-test would give p = 0 for two seeds. Then it is the smallest p of a rank test.

        >>> from orthograd.statistics import compare
        >>> round(compare([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]).p, 3)  # 2 / 2³
        0.25
        """
        if self.has_no_spread and self.difference:
            return self._least_p
        return (self.paired_test or self.welch_test).p

    @property
    def equivalence_p(self) -> float | None:
        """The p-value of the equivalence test; without spread, the smallest p of a rank test; None without a margin."""
        if self.equivalence is None:
            return None
        return max(self.equivalence.p, self._least_p / 2 if self.has_no_spread else 0.0)

    @property
    def _least_p(self) -> float:
        return least_p(self.baseline.n, self.candidate.n, paired=self.paired)

    @property
    def margin(self) -> float | None:
        """The largest difference that does not matter, stated beforehand."""
        return self.equivalence.margin if self.equivalence else None

    @property
    def is_significant(self) -> bool:
        """True if p < α, with the corrected p where there is one."""
        return (self.p if self.corrected_p is None else self.corrected_p) < self.alpha

    @property
    def is_equivalent(self) -> bool:
        """True if the equivalence test has p < α, with the corrected p where there is one; False without a margin."""
        p = self.equivalence_p if self.corrected_equivalence_p is None else self.corrected_equivalence_p
        return p is not None and p < self.alpha

    @property
    def has_no_spread(self) -> bool:
        """True if the standard error of the difference is zero."""
        return self.interval.low == self.interval.high

    @property
    def achieved_power(self) -> float:
        """The power of the uncorrected test for an effect as large as the observed one.

        It restates p and adds nothing to it, see `orthograd.statistics.power`.
        """
        effect = self._deciding_effect
        if math.isinf(effect):
            return float(self.p < self.alpha)
        if self.paired:
            return paired_power(effect, self.baseline.n, alpha=self.alpha)
        return independent_power(effect, self.baseline.n, self.candidate.n, alpha=self.alpha)

    @property
    def seeds_needed(self) -> int | None:
        """Pairs, or seeds per method, that detect an effect of the observed size with power 0.8.

        None where the effect is smaller than 0.001 standard deviations.
        """
        effect = self._deciding_effect
        if abs(effect) < 1e-3:
            return None
        if math.isinf(effect):
            return next(n for n in itertools.count(2) if least_p(n, n, paired=self.paired) < self.alpha)
        return seeds_needed(effect, paired=self.paired, alpha=self.alpha)

    @property
    def _deciding_effect(self) -> float:
        return (self.paired_effect or self.cohens_d).value

    @property
    def verdict(self) -> Verdict:
        """The verdict on the candidate: better, worse, lower, higher, equivalent or inconclusive."""
        return verdict_of(
            difference=self.difference,
            is_significant=self.is_significant,
            is_equivalent=self.is_equivalent,
            better=self.better,
        )

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with its statistics."""
        return _sentence(self)

    def as_dict(self) -> dict[str, Any]:
        """All statistics as a JSON object, where infinity is "inf"."""
        return {name: json_safe(getattr(self, name)) for name in RECORDED}

    def __str__(self) -> str:
        tests = {
            "paired t": self.paired_test,
            "Wilcoxon": self.wilcoxon_test,
            "Welch": self.welch_test,
            "Student": self.student_test,
        }
        effects = {"d": self.cohens_d, "g": self.hedges_g, "d_z": self.paired_effect}
        lines = [
            "p: " + ", ".join(f"{name} {probability(test.p)}" for name, test in tests.items() if test),
            "; ".join(f"{name} = {number(x.value)} ({ends(x.exact)})" for name, x in effects.items() if x),
            f"bootstrap interval {ends(self.bootstrap_interval)}",
            f"power {self.achieved_power:.2f} for the observed effect; seeds for power 0.80: {self.seeds_needed}",
        ]
        return "\n  ".join([self.sentence, *lines])


def _sentence(comparison: Comparison) -> str:
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
