"""The convention of each metric, and the result of an evaluation.

Libraries define metrics of the same name differently, so every number carries its convention.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .inputs import Task

Interval = tuple[float, float]
Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class Convention:
    """Definition, unit and number format of a metric, and the direction that is better (None: neither)."""

    definition: str
    better: Direction | None
    unit: str = ""
    digits: int = 4
    needs_logits: bool = False
    needs_every_confidence: bool = False  # memory grows with the number of samples


_GAP = "|accuracy − mean confidence| of the predicted class"
_BINS = "{bins} bins of equal width on (lower, upper]"

CONVENTIONS = {
    "top1_accuracy": Convention("share of samples whose label has the highest score", "higher", "%", 2),
    "top5_accuracy": Convention("share of samples whose label is among the {k} highest scores", "higher", "%", 2),
    "loss": Convention("mean of −log p(label), natural logarithm, by log-softmax from logits", "lower", "nats"),
    "ece": Convention(f"mean over samples of {_GAP}, in {_BINS}", "lower"),
    "brier": Convention("mean over samples of the sum over classes of (p − one-hot label)²", "lower"),
    "entropy": Convention("mean over samples of −Σ p log p, natural logarithm", None, "nats"),
    "max_softmax": Convention("mean over samples of the highest probability: the confidence", None),
    "max_logit": Convention("mean over samples of the largest |logit|", None, digits=2, needs_logits=True),
    "logit_variance": Convention(
        "unbiased variance over the classes of a sample, mean over samples", None, digits=2, needs_logits=True
    ),
    "confidence_accuracy_correlation": Convention(
        "Pearson correlation over samples of confidence and correctness; undefined where either is constant", "higher"
    ),
    "ece_by_chance": Convention(
        "expected ECE of a perfectly calibrated model with these confidences and this many samples", None
    ),
    "ece_by_chance_limit": Convention("upper limit of the ECE of such a model in 95% of test sets", None),
    "ece_l2": Convention(f"root of the mean over samples of the squared {_GAP}, in {_BINS}", "lower"),
    "ece_debiased": Convention(
        "ece_l2 with the sampling variance accuracy (1 − accuracy) / (count − 1) subtracted from each square; "
        "zero if the rest is negative",
        "lower",
    ),
    "mce": Convention(f"largest {_GAP}, in {_BINS}", "lower"),
    "ece_classwise": Convention(
        f"mean over classes of the ECE of p(class) against label = class, in {_BINS}, all samples", "lower"
    ),
    "brier_reliability": Convention(
        f"sum over classes of the mean squared gap between p(class) and its frequency, in {_BINS}", "lower"
    ),
    "brier_resolution": Convention("reliability + uncertainty − brier: the gain from telling samples apart", "higher"),
    "brier_uncertainty": Convention(
        "Σ f (1 − f) over the class frequencies f: the score of a model that predicts f", None
    ),
    "smooth_ece": Convention(
        "integral of the Gaussian-smoothed residual, confidence − correctness, at the width that equals it", "lower"
    ),
    "ece_equal_mass": Convention(
        f"mean over samples of {_GAP}, in {{bins}} bins of equal count; equal confidences share a bin",
        "lower",
        needs_every_confidence=True,
    ),
    "aurc": Convention(
        "mean over coverages of the error rate among the most confident samples; equal confidences share their rate",
        "lower",
        needs_every_confidence=True,
    ),
    "augrc": Convention(
        "mean over coverages of the share of all samples that are wrong and not withheld; equal confidences share it",
        "lower",
        needs_every_confidence=True,
    ),
}

ALL = tuple(CONVENTIONS)
STREAMING = tuple(name for name, convention in CONVENTIONS.items() if not convention.needs_every_confidence)
"""Metrics whose memory does not grow with the number of samples."""

PAPER = ALL[: ALL.index("ece_by_chance")]
"""The metrics of the paper's tables."""

CLASSWISE = ("ece_classwise", "brier_reliability", "brier_resolution", "brier_uncertainty")
"""Metrics that use the probability of every class."""


WEIGHTLESS = ("ece_by_chance", "ece_by_chance_limit", "ece_debiased", "aurc", "augrc")
"""Metrics that count samples, so that weights do not define them."""


def checked(metrics: Iterable[str]) -> tuple[str, ...]:
    """The metric names in the order of `CONVENTIONS`. Raises for unknown names."""
    if isinstance(metrics, str):
        raise TypeError(f"expected a collection of metric names, got the single string {metrics!r}")
    names: Collection[str] = list(metrics)
    unknown = [name for name in names if name not in CONVENTIONS]
    if unknown or not names:
        raise ValueError(f"expected metrics among {', '.join(ALL)}, got {', '.join(unknown) or 'none'}")
    return tuple(name for name in ALL if name in names)


def defined(
    metrics: Iterable[str] | None, default: tuple[str, ...], *, weighted: bool, ragged: bool
) -> tuple[str, ...]:
    """The requested metrics, checked; by default those of ``default`` that this form of input defines.

    >>> defined(None, ("loss", "aurc"), weighted=True, ragged=False)
    ('loss',)
    """
    reasons = dict.fromkeys(WEIGHTLESS, "counts samples and is not defined for weights") if weighted else {}
    if ragged:
        reasons |= dict.fromkeys(CLASSWISE, "needs the same classes in every row, unlike multiple choice")
    if metrics is None:
        return tuple(name for name in default if name not in reasons)
    names = checked(metrics)
    refused = [f"{name}, which {reasons[name]}" for name in names if name in reasons]
    if refused:
        raise ValueError(f"expected metrics that these samples define, got {'; '.join(refused)}")
    return names


@dataclass(frozen=True)
class Metrics:
    """Metrics by name. None: not requested, or not defined for these samples.

    ``ignored`` counts the positions with the label ``ignore_index``. ``weight`` is the sum of the weights, None without
    weights. In multiple choice, ``classes`` is the largest number of choices.
    """

    samples: int
    classes: int
    bins: int
    asked: tuple[str, ...]
    from_logits: bool = True
    task: Task = "multiclass"
    ignored: int = 0
    weight: float | None = None
    confidence_level: float = 0.95
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    top1_accuracy: float | None = None
    top5_accuracy: float | None = None
    loss: float | None = None
    ece: float | None = None
    brier: float | None = None
    entropy: float | None = None
    max_softmax: float | None = None
    max_logit: float | None = None
    logit_variance: float | None = None
    confidence_accuracy_correlation: float | None = None
    ece_by_chance: float | None = None
    ece_by_chance_limit: float | None = None
    ece_l2: float | None = None
    ece_debiased: float | None = None
    mce: float | None = None
    ece_classwise: float | None = None
    brier_reliability: float | None = None
    brier_resolution: float | None = None
    brier_uncertainty: float | None = None
    smooth_ece: float | None = None
    ece_equal_mass: float | None = None
    aurc: float | None = None
    augrc: float | None = None

    @property
    def conventions(self) -> dict[str, str]:
        """The definition of each metric, with the bins and the k that were used."""
        k = min(5, self.classes)
        return {name: CONVENTIONS[name].definition.format(bins=self.bins, k=k) for name in self.asked}

    def as_row(self) -> dict[str, float | None]:
        """The values by name."""
        return {name: getattr(self, name) for name in self.asked}

    def as_dict(self) -> dict[str, Any]:
        """All values and settings as plain data for JSON; infinity is the string "inf"."""
        return {
            "samples": self.samples,
            "classes": self.classes,
            "bins": self.bins,
            "from": "logits" if self.from_logits else "probabilities",
            "task": self.task,
            "ignored": self.ignored,
            "weight": self.weight,
            "metrics": {name: _plain(value) for name, value in self.as_row().items()},
            "confidence_level": self.confidence_level,
            "intervals": {name: [_plain(low), _plain(high)] for name, (low, high) in self.intervals.items()},
            "conventions": self.conventions,
        }

    def formatted(self, name: str) -> str:
        """One value as text: "75.18%", "0.1680 nats", "undefined"."""
        value, convention = getattr(self, name), CONVENTIONS[name]
        if value is None:
            return "needs logits" if convention.needs_logits and not self.from_logits else "undefined"
        space = "" if convention.unit in ("", "%") else " "
        return f"{value:.{convention.digits}f}{space}{convention.unit}"

    def formatted_interval(self, name: str) -> str:
        """The interval of a value as text; empty if it has none."""
        if name not in self.intervals:
            return ""
        low, high = self.intervals[name]
        digits = CONVENTIONS[name].digits
        return f"[{low:.{digits}f}, {high:.{digits}f}]"

    @property
    def size(self) -> str:
        """The samples and classes as text: "300 samples, 4 classes"."""
        samples, classes = self._words()
        ignored = f" ({self.ignored:,} ignored)" if self.ignored else ""
        return f"{self.samples:,} {samples}{ignored}, {classes}"

    def _words(self) -> tuple[str, str]:
        """The noun for what is counted, and the number of classes or labels."""
        is_ragged = self.task == "multiple_choice"
        return "samples", f"up to {self.classes} choices" if is_ragged else f"{self.classes} classes"

    def __str__(self) -> str:
        widest = max(map(len, self.asked))
        lines = [self._heading()]
        for name in self.asked:
            lines.append(f"  {name:<{widest}}  {self.formatted(name):>12}  {self.formatted_interval(name)}".rstrip())
        return "\n".join(lines)

    def _heading(self) -> str:
        weight = "" if self.weight is None else f", total weight {self.weight:g}"
        return f"{self.size}, {self.bins} bins{weight}"


@dataclass(frozen=True)
class MultiLabelMetrics(Metrics):
    """Metrics of a multi-label problem. The values themselves are macro means, over the labels.

    ``micro`` has the metrics of all binary decisions together, ``per_label`` those of each label. A macro mean is None
    if one label does not define it. ``samples`` counts binary decisions: samples times labels.
    """

    micro: Metrics = field(kw_only=True)
    per_label: tuple[Metrics, ...] = field(kw_only=True)

    @classmethod
    def of(cls, micro: Metrics, per_label: tuple[Metrics, ...]) -> MultiLabelMetrics:
        """The macro means of these labels."""
        settings = {each.name: getattr(micro, each.name) for each in fields(Metrics) if each.name not in CONVENTIONS}
        return cls(**settings, **_means(per_label), micro=micro, per_label=per_label)

    def as_dict(self) -> dict[str, Any]:
        """As `Metrics.as_dict`, where "metrics" are macro means; "micro" and "per_label" are dicts of metrics."""
        dicts = [each.as_dict()["metrics"] for each in (self.micro, *self.per_label)]
        return super().as_dict() | {"micro": dicts[0], "per_label": dicts[1:]}

    def _words(self) -> tuple[str, str]:
        return "decisions", f"mean over {len(self.per_label)} labels"


def _means(per_label: tuple[Metrics, ...]) -> dict[str, Any]:
    rows = [each.as_row() for each in per_label]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: None if None in column else math.fsum(column) / len(column)  # type: ignore[arg-type]
        for name, column in columns.items()
    }


def _plain(value: float | None) -> float | str | None:
    return value if value is None or abs(value) < float("inf") else str(value)
