"""What the paper says in words, and whether our runs say so too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MARGINS
from ...statistics import Comparison, compare
from ..evidence import Evidence, title_of, values_of
from ..plan import EXPERIMENTS
from .numbers import LEVEL

Finding = tuple[str, str]
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
    check: Callable[[Evidence], Finding | None]


def _comparison(
    evidence: Evidence, experiment: str, quantity: str, *, margin: float | None = None
) -> Comparison | None:
    """The first two methods of an experiment; None where runs are missing or have no such number."""
    pair = evidence.pair(EXPERIMENTS[experiment])
    methods = ([], []) if pair is None else (values_of(pair.baseline, quantity), values_of(pair.candidate, quantity))
    return compare(*methods, margin=margin, alpha=LEVEL) if all(methods) else None


def _is_as_accurate(experiment: str) -> Callable[[Evidence], Finding | None]:
    def check(evidence: Evidence) -> Finding | None:
        accuracy = _comparison(evidence, experiment, ACCURACY, margin=MARGINS["top1_accuracy"])
        if accuracy is None or accuracy.equivalence is None:
            return None
        is_different = accuracy.is_significant
        verdict = "reproduced" if accuracy.is_equivalent else "not reproduced" if is_different else "inconclusive"
        low, high = accuracy.equivalence.interval
        return verdict, typeset(f"the difference lies between {low:+.2f} and {high:+.2f} points (90%, paired)")

    return check


def _persists(experiment: str) -> Callable[[Evidence], Finding | None]:
    def check(evidence: Evidence) -> Finding | None:
        contrary = []
        for metric in (*LOWER, "entropy"):
            row = _comparison(evidence, experiment, f"shifted.{metric}")
            if row is None:
                return None
            if (row.difference > 0) != (metric in LOWER):
                contrary.append(title_of(f"clean.{metric}"))
        if contrary:
            return "not reproduced", f"the other way round: {', '.join(contrary)}"
        return "reproduced", "all five have that sign"

    return check


def _without_difference(experiment: str, quantities: tuple[str, ...]) -> Callable[[Evidence], Finding | None]:
    def check(evidence: Evidence) -> Finding | None:
        p = {}
        for quantity in quantities:
            row = _comparison(evidence, experiment, quantity)
            if row is None:
                return None
            p[quantity] = row.student_test.p
        different = [f"{title_of(name)} (p = {value:.2g})" for name, value in p.items() if value < LEVEL]
        if different:
            return "not reproduced", f"significant: {', '.join(different)}"
        return "reproduced", f"the smallest p is {min(p.values()):.2g}; that shows no equality"

    return check


def _crossing(evidence: Evidence) -> Finding | None:
    rows = [
        _comparison(evidence, "extended", name)
        for name in ("clean.top1_accuracy", *(f"severity_{level}.top1_accuracy" for level in (3, 4, 5)))
    ]
    gaps = [-row.difference for row in rows if row is not None]
    if len(gaps) < len(rows):
        return None
    shown = typeset(", ".join(f"{gap:+.2f}" for gap in gaps))
    is_so = gaps[0] < 0 and all(gap > 0 for gap in gaps[1:])
    return "reproduced" if is_so else "not reproduced", f"⊥Grad − SGD in points: {shown}"


def _better_when_corrupted(evidence: Evidence) -> Finding | None:
    contrary = []
    for metric, level in product(("loss", "ece"), (2, 3, 4, 5)):
        row = _comparison(evidence, "extended", f"severity_{level}.{metric}")
        if row is None:
            return None
        if row.difference <= 0:
            contrary.append(f"{title_of(f'clean.{metric}')} at severity {level}")
    if contrary:
        return "not reproduced", f"the other way round: {', '.join(contrary)}"
    return "reproduced", "all eight have that sign"


def _beats_every_short_run(evidence: Evidence) -> Finding | None:
    long, short = (_comparison(evidence, name, "severity_5.top1_accuracy") for name in ("extended", "table1"))
    if long is None or short is None:
        return None
    best, mean = max((*short.baseline_values, *short.candidate_values)), long.candidate.mean
    return (
        "reproduced" if mean > best else "not reproduced",
        f"{mean:.2f} % on average; best of 100 epochs {best:.2f} %",
    )


STATEMENTS = (
    Statement("table1", "Accuracy is unchanged.", "equal within one point, paired", _is_as_accurate("table1")),
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
        "its mean against the best of both methods",
        _beats_every_short_run,
    ),
    Statement("wideresnet", "Accuracy is unchanged.", "equal within one point, paired", _is_as_accurate("wideresnet")),
    Statement(
        "wideresnet", "The effects persist under corruption.", "signs, as for ResNet-18", _persists("wideresnet")
    ),
)


def checked(evidence: Evidence, experiment: str) -> Iterator[tuple[Statement, Finding]]:
    """The statements that an experiment answers, each with its verdict and the reason."""
    for statement in STATEMENTS:
        if statement.experiment == experiment:
            yield statement, statement.check(evidence) or ("still missing", "–")
