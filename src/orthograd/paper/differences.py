"""What our runs say of a difference, as the paper would have computed it and as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..calibration import CONVENTIONS
from ..lab.comparison.pair import MARGINS, ArmPair
from ..statistics import Interval, Verdict, cohens_d, difference_interval, holm, t_test, tost
from ..statistics.hypothesis import least_p
from ..statistics.verdict import Direction, verdict_of
from .judgement import LEVEL
from .quantities import values_of

Arms = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Difference:
    """Of one quantity, first − second arm: d and p by the paper's formulas; interval, p and verdict by pairs."""

    means: tuple[float, float]
    deviations: tuple[float, float]
    d: float
    d_interval: Interval
    independent_p: float
    interval: Interval
    p: float
    corrected_p: float
    verdict: Verdict

    @property
    def value(self) -> float:
        """First mean − second mean."""
        return self.means[0] - self.means[1]


def differences(arms: Mapping[str, Arms], *, margins: Mapping[str, float] | None = None) -> dict[str, Difference]:
    """Of every quantity, corrected by Holm's rule over all of them.

    ``margins`` are what differences do not matter within, the usual ones if not given.

    >>> found = differences({"clean.ece": ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])})
    >>> found["clean.ece"].verdict
    'better'
    """
    tests = {name: _p(*pair) for name, pair in arms.items()}
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    if margins is None:
        margins = {name: margin for name in arms if (margin := MARGINS.get(_metric(name))) is not None}
    equal = [_equivalence_p(*arms[name], margin) for name, margin in margins.items()]
    is_equal = {name: p < LEVEL for name, p in zip(margins, holm(equal), strict=True)}
    return {
        name: _difference(name, pair, tests[name], corrected[name], is_equal=is_equal.get(name, False))
        for name, pair in arms.items()
    }


def _p(first: Sequence[float], second: Sequence[float]) -> float:
    """By pairs, as `statistics.Comparison.p` has it."""
    found = t_test(first, second, method="paired").p
    return max(found, least_p(len(first), len(second), paired=True)) if _has_no_spread(first, second) else found


def _equivalence_p(first: Sequence[float], second: Sequence[float], margin: float) -> float:
    found = tost(first, second, margin=margin).p
    return max(found, least_p(len(first), len(second), paired=True) / 2) if _has_no_spread(first, second) else found


def _has_no_spread(first: Sequence[float], second: Sequence[float]) -> bool:
    interval = difference_interval(first, second, method="paired")
    return interval.low == interval.high


def differences_of(pair: ArmPair, quantities: Sequence[str]) -> dict[str, Difference]:
    """Of those quantities for which every run has a number."""
    found = {name: (values_of(pair.baseline, name), values_of(pair.candidate, name)) for name in quantities}
    return differences({name: arms for name, arms in found.items() if all(arms)})


def _difference(name: str, arms: Arms, p: float, corrected_p: float, *, is_equal: bool) -> Difference:
    effect, interval = cohens_d(*arms), difference_interval(*arms, method="paired")
    assert effect.normal is not None
    first, second = (float(np.mean(arm)) for arm in arms)
    verdict = verdict_of(
        difference=first - second, is_significant=corrected_p < LEVEL, is_equivalent=is_equal, better=_better(name)
    )
    return Difference(
        means=(first, second),
        deviations=(float(np.std(arms[0], ddof=1)), float(np.std(arms[1], ddof=1))),
        d=effect.value,
        d_interval=effect.normal,
        independent_p=t_test(*arms, method="student").p,
        interval=interval,
        p=p,
        corrected_p=corrected_p,
        verdict=verdict,
    )


def _metric(quantity: str) -> str:
    name = quantity.rpartition(".")[2]
    return "brier" if name == "brier_mean" else name


def _better(quantity: str) -> Direction | None:
    convention = CONVENTIONS.get(_metric(quantity))
    return None if convention is None else convention.better
