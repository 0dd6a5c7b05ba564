"""What the paper says in words, each statement as claims about differences, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...lab.comparison.pair import MARGINS
from ...lab.data.corruption.generation import CORRUPTIONS
from ...lab.data.shifts import SEVERITIES
from ..evidence import ALONE, Evidence, convention_of, title_of, values_of
from ..formats import interval_text
from ..plan import EXPERIMENTS
from .claims import sections
from .numbers import claim_of
from .rule import DRAWS, Claim, Estimate, Methods, Says, Verdict, difference_estimates, verdict_on, without_effect

POINT = {**MARGINS, "top5_accuracy": 1.0, "ece": 0.01}
"""Equivalence margins: one point of accuracy, and of the distance between accuracy and confidence."""


@dataclass(frozen=True)
class Statement:
    """Words of the paper in ours, their section, and the metrics of an experiment's second method that they are about.

    ``also`` are experiments for which all claims must hold, too. With ``beats`` the second method is compared with the
    best run of both methods of that experiment. ``untested`` is the reason why a statement has no verdict.
    """

    experiment: str
    section: str
    words: str
    claims: tuple[tuple[str, Says], ...] = ()
    also: tuple[str, ...] = ()
    beats: str | None = None
    untested: str | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on a statement, the reason, and how often the rule gives each verdict if the method did nothing."""

    verdict: Verdict
    reason: str
    without_effect: Mapping[Verdict, float]


def _each(images: Iterable[str], metrics: Iterable[str], says: Says) -> tuple[tuple[str, Says], ...]:
    return tuple((f"{where}.{metric}", says) for metric in metrics for where in images)


def _less_confident(images: str) -> tuple[tuple[str, Says], ...]:
    lower = ("loss", "max_softmax", "max_logit", "logit_variance")
    return (*_each([images], lower, "lower"), (f"{images}.entropy", "higher"))


AS_ACCURATE: tuple[tuple[str, Says], ...] = (("clean.top1_accuracy", "equal"),)
RENORMALIZED = ("top1_accuracy", "loss", "ece", "entropy", "max_softmax", "max_logit")
EACH_SEVERITY = tuple(f"severity_{level}" for level in SEVERITIES)
TYPES = tuple(f"type_{name}" for name in CORRUPTIONS)

STATEMENTS = (
    Statement("table1", "4.1", "Accuracy is unchanged.", AS_ACCURATE),
    Statement("table1", "4.1", "The norm of all weights does not differ.", (("weight_norm", "equal"),)),
    Statement("table1", "7.5", "Reliability is slightly better.", _each(("clean", "shifted"), ("ece",), "lower")),
    Statement(
        "table1",
        "6",
        "⊥Grad costs little time.",
        untested="The paper gives no number. Our measurements are on the page about performance.",
    ),
    Statement(
        "corruption",
        "4.3",
        "Under corruption, loss, confidence, largest logit and logit variance stay lower and entropy higher.",
        _less_confident("shifted"),
    ),
    Statement("corruption", "4.3", "Under corruption, accuracy hardly differs.", (("shifted.top1_accuracy", "equal"),)),
    Statement("corruption", "4.3", "Loss is lower at each severity.", _each(EACH_SEVERITY, ("loss",), "lower")),
    Statement("corruption", "4.3", "Entropy is higher at each severity.", _each(EACH_SEVERITY, ("entropy",), "higher")),
    Statement("corruption", "4.3", "ECE is lower at each severity.", _each(EACH_SEVERITY, ("ece",), "lower")),
    Statement("corruption", "4.3", "Loss is lower for each type of corruption.", _each(TYPES, ("loss",), "lower")),
    Statement("corruption", "4.3", "ECE is lower for each type of corruption.", _each(TYPES, ("ece",), "lower")),
    Statement(
        "temperature",
        "4.2",
        "After temperature scaling, ECE and Brier score do not differ.",
        _each(("after_temperature",), ("ece", "brier"), "equal"),
    ),
    Statement(
        "temperature",
        "7.5",
        "Gains are kept after temperature scaling. (The paper's own table has equal means there, so it shows no gain.)",
        _each(("after_temperature",), ("ece", "brier_mean"), "lower"),
    ),
    Statement(
        "renormalization",
        "7.4",
        "With and without renormalization, no metric differs significantly.",
        _each(("clean",), RENORMALIZED, "equal"),
    ),
    Statement("renormalization", "3", "The same on corrupted images.", _each(("shifted",), RENORMALIZED, "equal")),
    Statement(
        "extended",
        "5.1",
        "After 1000 epochs SGD is more accurate on clean images, ⊥Grad from severity 3 on.",
        (("clean.top1_accuracy", "lower"), *_each(EACH_SEVERITY[2:], ("top1_accuracy",), "higher")),
    ),
    Statement(
        "extended",
        "5.1",
        "After 1000 epochs ⊥Grad has the better loss and ECE from severity 2 on.",
        _each(EACH_SEVERITY[1:], ("loss", "ece"), "lower"),
    ),
    Statement(
        "extended",
        "5.1",
        "At severity 5, ⊥Grad after 1000 epochs is more accurate than every run of 100 epochs.",
        (("severity_5.top1_accuracy", "higher"),),
        beats="table1",
    ),
    Statement("wideresnet", "5.2", "Accuracy is unchanged.", AS_ACCURATE),
    Statement("wideresnet", "5.2", "The effects persist under corruption.", _less_confident("shifted")),
    Statement("wideresnet", "7.5", "Reliability is better throughout.", _each(("clean", "shifted"), ("ece",), "lower")),
    Statement(
        "wideresnet",
        "5.2",
        "Loss and confidence fall on every architecture. (The paper has two, we add ResNet-50.)",
        _less_confident("clean"),
        also=("table1", "resnet50"),
    ),
    Statement(
        "adamw",
        "6",
        "Loss and confidence fall with every optimizer. (The paper has SGD, we add AdamW.)",
        _less_confident("clean"),
    ),
)


def checked(evidence: Evidence, experiment: str) -> Iterator[tuple[Statement, Finding | None]]:
    """The statements that an experiment answers, each with the verdict on it; None without runs."""
    for statement in STATEMENTS:
        if statement.experiment == experiment:
            yield statement, finding_of(statement, evidence)


def finding_of(statement: Statement, evidence: Evidence) -> Finding | None:
    """The verdict on a statement: each of its claims by the rule, then `together`; None without runs or claims."""
    verdicts: dict[str, Verdict] = {}
    drawn: list[list[Verdict]] = []
    shown = []
    has_images = len({quantity.partition(".")[0] for quantity, _ in statement.claims}) > 1
    for experiment in (statement.experiment, *statement.also):
        for quantity, says in statement.claims:
            claim, methods = _claim(statement, experiment, quantity, says), _values(evidence, experiment, quantity)
            best = None if statement.beats is None else _best(evidence, statement.beats, quantity)
            if methods is None or (statement.beats is not None and best is None):
                return None
            (ours,) = _estimates((np.array([methods[0]]), np.array([methods[1]])), best)
            title = EXPERIMENTS[experiment].title.removeprefix("Table 1: ") if statement.also else ""
            name = _name(quantity, has_images=has_images, experiment=title)
            verdicts[name] = verdict_on(claim, ours)
            drawn.append([verdict_on(claim, each) for each in _estimates(without_effect(methods), best)])
            shown.append(f"{name} {interval_text(ours.value, ours.interval, _digits(quantity))}")
    if not verdicts:
        return None
    counts = Counter(together(each) for each in zip(*drawn, strict=True))
    shares = {verdict: count / DRAWS for verdict, count in counts.items()}
    return Finding(together(tuple(verdicts.values())), _reason(verdicts, shown), shares)


def together(verdicts: tuple[Verdict, ...]) -> Verdict:
    """The verdict on a statement of several claims: the worst of them, and "reproduced" only if all are."""
    order: tuple[Verdict, ...] = ("contradicted by its own numbers", "not reproduced", "compatible")
    return next((verdict for verdict in order if verdict in verdicts), "reproduced")


def _claim(statement: Statement, experiment: str, quantity: str, says: Says) -> Claim:
    """With the paper's own number where one of its tables has it."""
    name = EXPERIMENTS[experiment].answers
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


def _reason(verdicts: dict[str, Verdict], shown: list[str]) -> str:
    """The differences if there are one or two claims; else which claims have which verdict."""
    if len(shown) <= 2:
        return "; ".join(shown)
    found = list(dict.fromkeys(verdicts.values()))
    if len(found) == 1:
        return f"all {len(verdicts)} {found[0]}"
    return "; ".join(
        f"{verdict}: {', '.join(name for name, each in verdicts.items() if each == verdict)}" for verdict in found
    )


def _name(quantity: str, *, has_images: bool, experiment: str) -> str:
    """A short name, with the images and the experiment where a statement has several."""
    images, _, metric = quantity.partition(".")
    if images.startswith("type_"):
        return images.removeprefix("type_").replace("_", " ")
    name = title_of(quantity if quantity in ALONE or has_images else f"clean.{metric}").replace(", %", "")
    if images.startswith("severity_"):
        name = f"{title_of(f'clean.{metric}').removesuffix(', %')} at severity {images[-1]}"
    return f"{name} ({experiment})" if experiment else name


def _digits(quantity: str) -> int:
    convention = convention_of(quantity)
    return 3 if convention is None else convention.digits
