"""What the paper says in words, and whether our runs say so too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from ..lab.comparison.page.tables import typeset
from ..lab.comparison.pair import MARGINS
from ..statistics import t_test, tost
from .evidence import Evidence
from .experiments import EXPERIMENTS
from .judgement import LEVEL
from .quantities import title_of, values_of

Found = tuple[str, str]
"""A verdict and its reason."""
ACCURACY = "clean.top1_accuracy"
LOWER = ("loss", "max_softmax", "max_logit", "logit_variance")
SIX = ("top1_accuracy", "loss", "ece", "entropy", "max_softmax", "max_logit")


@dataclass(frozen=True)
class Statement:
    """Words of the paper in ours, how they are checked, and the check, which is None where runs are missing."""

    experiment: str
    words: str
    rule: str
    check: Callable[[Evidence], Found | None]


def _means(evidence: Evidence, experiment: str, quantity: str) -> tuple[list[float], list[float]] | None:
    pair = evidence.pair(EXPERIMENTS[experiment])
    if pair is None:
        return None
    arms = values_of(pair.baseline, quantity), values_of(pair.candidate, quantity)
    return arms if all(arms) else None


def _is_as_accurate(experiment: str) -> Callable[[Evidence], Found | None]:
    def check(evidence: Evidence) -> Found | None:
        pair = evidence.pair(EXPERIMENTS[experiment])
        if pair is None:
            return None
        arms = (values_of(pair.baseline, ACCURACY), values_of(pair.candidate, ACCURACY))
        found, equal = t_test(*arms).p, tost(*arms, margin=MARGINS["top1_accuracy"])
        verdict = "reproduced" if equal.p < LEVEL else "not reproduced" if found < LEVEL else "undecided"
        low, high = equal.interval
        return verdict, typeset(f"the difference lies between {low:+.2f} and {high:+.2f} points (90 %, by pairs)")

    return check


def _persists(experiment: str) -> Callable[[Evidence], Found | None]:
    def check(evidence: Evidence) -> Found | None:
        contrary = []
        for metric in (*LOWER, "entropy"):
            arms = _means(evidence, experiment, f"shifted.{metric}")
            if arms is None:
                return None
            difference = sum(arms[0]) / len(arms[0]) - sum(arms[1]) / len(arms[1])
            if (difference > 0) != (metric in LOWER):
                contrary.append(title_of(f"clean.{metric}"))
        if contrary:
            return "not reproduced", f"the other way round: {', '.join(contrary)}"
        return "reproduced", "all five have that sign"

    return check


def _without_difference(experiment: str, quantities: tuple[str, ...]) -> Callable[[Evidence], Found | None]:
    def check(evidence: Evidence) -> Found | None:
        found = {}
        for quantity in quantities:
            arms = _means(evidence, experiment, quantity)
            if arms is None:
                return None
            found[quantity] = t_test(*arms, method="student").p
        different = [f"{title_of(name)} (p = {p:.2g})" for name, p in found.items() if p < LEVEL]
        if different:
            return "not reproduced", f"significant: {', '.join(different)}"
        return "reproduced", f"the smallest p is {min(found.values()):.2g}; that shows no equality"

    return check


def _crossing(evidence: Evidence) -> Found | None:
    found = [
        _means(evidence, "extended", name)
        for name in ("clean.top1_accuracy", *(f"severity_{level}.top1_accuracy" for level in (3, 4, 5)))
    ]
    gaps = [sum(arms[1]) / len(arms[1]) - sum(arms[0]) / len(arms[0]) for arms in found if arms is not None]
    if len(gaps) < len(found):
        return None
    told = typeset(", ".join(f"{gap:+.2f}" for gap in gaps))
    is_so = gaps[0] < 0 and all(gap > 0 for gap in gaps[1:])
    return "reproduced" if is_so else "not reproduced", f"⊥Grad − SGD in points: {told}"


def _better_when_corrupted(evidence: Evidence) -> Found | None:
    contrary = []
    for metric, level in product(("loss", "ece"), (2, 3, 4, 5)):
        arms = _means(evidence, "extended", f"severity_{level}.{metric}")
        if arms is None:
            return None
        if sum(arms[1]) / len(arms[1]) >= sum(arms[0]) / len(arms[0]):
            contrary.append(f"{title_of(f'clean.{metric}')} at severity {level}")
    if contrary:
        return "not reproduced", f"the other way round: {', '.join(contrary)}"
    return "reproduced", "all eight have that sign"


def _beats_every_short_run(evidence: Evidence) -> Found | None:
    long, short = (_means(evidence, name, "severity_5.top1_accuracy") for name in ("extended", "table1"))
    if long is None or short is None:
        return None
    best, mean = max((*short[0], *short[1])), sum(long[1]) / len(long[1])
    return (
        "reproduced" if mean > best else "not reproduced",
        f"{mean:.2f} % on average; best of 100 epochs {best:.2f} %",
    )


STATEMENTS = (
    Statement("table1", "Accuracy is unchanged.", "equal within one point, by pairs", _is_as_accurate("table1")),
    Statement(
        "corruption",
        "Under corruption, loss, confidence, largest logit and logit variance stay lower and entropy higher.",
        "signs of the mean differences",
        _persists("corruption"),
    ),
    Statement(
        "temperature",
        "After temperature scaling, ECE and Brier score do not differ.",
        "independent t-tests, p > 0.05",
        _without_difference("temperature", ("after_temperature.ece", "after_temperature.brier")),
    ),
    Statement(
        "renormalisation",
        "With and without renormalisation, no metric differs significantly.",
        "independent t-tests, p > 0.05",
        _without_difference("renormalisation", tuple(f"clean.{metric}" for metric in SIX)),
    ),
    Statement(
        "extended",
        "After 1000 epochs SGD is more accurate on clean images, ⊥Grad from severity 3 on.",
        "signs of the mean differences: clean, then severities 3, 4, 5",
        _crossing,
    ),
    Statement(
        "extended",
        "After 1000 epochs ⊥Grad has the better loss and ECE from severity 2 on.",
        "signs of the mean differences at severities 2 to 5",
        _better_when_corrupted,
    ),
    Statement(
        "extended",
        "At severity 5, ⊥Grad after 1000 epochs is more accurate than every run of 100 epochs.",
        "its mean against the best of both arms",
        _beats_every_short_run,
    ),
    Statement(
        "wideresnet", "Accuracy is unchanged.", "equal within one point, by pairs", _is_as_accurate("wideresnet")
    ),
    Statement(
        "wideresnet", "The effects persist under corruption.", "signs, as for ResNet-18", _persists("wideresnet")
    ),
)


def checked(evidence: Evidence, experiment: str) -> Iterator[tuple[Statement, Found]]:
    """The statements that an experiment answers, each with what was found."""
    for statement in STATEMENTS:
        if statement.experiment == experiment:
            yield statement, statement.check(evidence) or ("still missing", "–")
