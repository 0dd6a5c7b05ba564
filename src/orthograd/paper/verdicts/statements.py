"""What the paper says in words, each statement as claims about differences, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...lab.comparison.formats import TITLES
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MARGINS
from ..evidence import Evidence, values_of
from ..plan import EXPERIMENTS
from .claims import sections
from .numbers import claim_of
from .rule import DRAWS, Claim, Estimate, Methods, Says, Verdict, difference_estimates, verdict_on, without_effect

POINT = {**MARGINS, "top5_accuracy": 1.0, "ece": 0.01}
"""Equivalence margins: one point of accuracy, and of the distance between accuracy and confidence."""


@dataclass(frozen=True)
class Statement:
    """Words of the paper in ours, and the metrics of an experiment's second method that they are about.

    With ``beats`` the second method is compared with the best run of both methods of that experiment.
    """

    experiment: str
    words: str
    claims: tuple[tuple[str, Says], ...]
    beats: str | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on a statement, the reason, and how often the rule gives each verdict if the method did nothing."""

    verdict: Verdict
    reason: str
    without_effect: Mapping[Verdict, float]


LESS_CONFIDENT: tuple[tuple[str, Says], ...] = (
    ("shifted.loss", "lower"),
    ("shifted.max_softmax", "lower"),
    ("shifted.max_logit", "lower"),
    ("shifted.logit_variance", "lower"),
    ("shifted.entropy", "higher"),
)
AS_ACCURATE: tuple[tuple[str, Says], ...] = (("clean.top1_accuracy", "equal"),)

STATEMENTS = (
    Statement("table1", "Accuracy is unchanged.", AS_ACCURATE),
    Statement(
        "corruption",
        "Under corruption, loss, confidence, largest logit and logit variance stay lower and entropy higher.",
        LESS_CONFIDENT,
    ),
    Statement(
        "temperature",
        "After temperature scaling, ECE and Brier score do not differ.",
        (("after_temperature.ece", "equal"), ("after_temperature.brier", "equal")),
    ),
    Statement(
        "renormalization",
        "With and without renormalization, no metric differs significantly.",
        tuple(
            (f"clean.{metric}", "equal")
            for metric in ("top1_accuracy", "loss", "ece", "entropy", "max_softmax", "max_logit")
        ),
    ),
    Statement(
        "extended",
        "After 1000 epochs SGD is more accurate on clean images, ⊥Grad from severity 3 on.",
        (
            ("clean.top1_accuracy", "lower"),
            ("severity_3.top1_accuracy", "higher"),
            ("severity_4.top1_accuracy", "higher"),
            ("severity_5.top1_accuracy", "higher"),
        ),
    ),
    Statement(
        "extended",
        "After 1000 epochs ⊥Grad has the better loss and ECE from severity 2 on.",
        tuple((f"severity_{level}.{metric}", "lower") for metric in ("loss", "ece") for level in (2, 3, 4, 5)),
    ),
    Statement(
        "extended",
        "At severity 5, ⊥Grad after 1000 epochs is more accurate than every run of 100 epochs.",
        (("severity_5.top1_accuracy", "higher"),),
        beats="table1",
    ),
    Statement("wideresnet", "Accuracy is unchanged.", AS_ACCURATE),
    Statement("wideresnet", "The effects persist under corruption.", LESS_CONFIDENT),
)


def checked(evidence: Evidence, experiment: str) -> Iterator[tuple[Statement, Finding | None]]:
    """The statements that an experiment answers, each with the verdict on it; None without runs."""
    for statement in STATEMENTS:
        if statement.experiment == experiment:
            yield statement, finding_of(statement, evidence)


def finding_of(statement: Statement, evidence: Evidence) -> Finding | None:
    """The verdict on a statement: each of its claims by the rule, then `together`; None without runs."""
    verdicts: dict[str, Verdict] = {}
    drawn: list[list[Verdict]] = []
    shown = []
    for quantity, says in statement.claims:
        claim, methods = _claim(statement, quantity, says), _values(evidence, statement.experiment, quantity)
        best = None if statement.beats is None else _best(evidence, statement.beats, quantity)
        if methods is None or (statement.beats is not None and best is None):
            return None
        (ours,) = _estimates((np.array([methods[0]]), np.array([methods[1]])), best)
        verdicts[quantity] = verdict_on(claim, ours)
        drawn.append([verdict_on(claim, each) for each in _estimates(without_effect(methods), best)])
        shown.append(_shown(quantity, ours))
    counts = Counter(together(each) for each in zip(*drawn, strict=True))
    shares = {verdict: count / DRAWS for verdict, count in counts.items()}
    return Finding(together(tuple(verdicts.values())), _reason(verdicts, shown), shares)


def together(verdicts: tuple[Verdict, ...]) -> Verdict:
    """The verdict on a statement of several claims: the worst of them, and "reproduced" only if all are."""
    order: tuple[Verdict, ...] = ("contradicted by its own numbers", "not reproduced", "compatible")
    return next((verdict for verdict in order if verdict in verdicts), "reproduced")


def _claim(statement: Statement, quantity: str, says: Says) -> Claim:
    """With the paper's own number where one of its tables has it."""
    name = EXPERIMENTS[statement.experiment].answers
    rows = [] if name is None else [row for row in sections()[name].rows if row.quantity == quantity]
    if says == "equal" or not rows or statement.beats is not None:
        return Claim(says, margin=POINT.get(quantity.rpartition(".")[2]))
    printed = claim_of(rows[0], sections()[str(name)].seeds)
    return Claim(says, printed.size, printed.rounding, printed.seeds)


def _values(evidence: Evidence, experiment: str, quantity: str) -> Methods | None:
    """The first two methods of an experiment; None without runs that have such a number."""
    pair = evidence.pair(EXPERIMENTS[experiment])
    if pair is None:
        return None
    baseline, candidate = values_of(pair.baseline, quantity), values_of(pair.candidate, quantity)
    return (baseline, candidate) if baseline and candidate else None


def _best(evidence: Evidence, experiment: str, quantity: str) -> float | None:
    methods = _values(evidence, experiment, quantity)
    return None if methods is None else max((*methods[0], *methods[1]))


def _estimates(methods: tuple[np.ndarray, np.ndarray], best: float | None) -> list[Estimate]:
    baseline, candidate = methods
    return difference_estimates(baseline if best is None else np.full_like(candidate, best), candidate)


def _shown(quantity: str, ours: Estimate) -> str:
    low, high = ours.interval
    return typeset(f"{_name(quantity)} {ours.value:+.2f} ({low:+.2f} to {high:+.2f})")


def _reason(verdicts: dict[str, Verdict], shown: list[str]) -> str:
    """The difference if there is one claim; else which claims have which verdict."""
    if len(shown) == 1:
        return shown[0]
    found = list(dict.fromkeys(verdicts.values()))
    if len(found) == 1:
        return f"all {len(verdicts)} {found[0]}"
    return "; ".join(
        f"{verdict}: {', '.join(_name(name) for name, each in verdicts.items() if each == verdict)}"
        for verdict in found
    )


def _name(quantity: str) -> str:
    """A short name: the statement tells clean from corrupted images."""
    images, _, metric = quantity.partition(".")
    name = TITLES[metric].removesuffix(", %")
    return f"{name} at severity {images[-1]}" if images.startswith("severity_") else name
