"""What each number means: the same name means different things elsewhere, so every number carries its convention."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class Convention:
    """A metric's definition in words, its unit, which way is better (None: neither by itself), and how to print it."""

    definition: str
    better: Direction | None
    unit: str = ""
    digits: int = 4
    needs_logits: bool = False
    needs_every_confidence: bool = False  # so its memory grows with the number of samples


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
    "ece_by_chance_limit": Convention("what the ECE of such a model stays under in 95 % of test sets", None),
    "ece_l2": Convention(f"root of the mean over samples of the squared {_GAP}, in {_BINS}", "lower"),
    "ece_debiased": Convention(
        "as ece_l2, less what sampling alone adds to each square: accuracy (1 − accuracy) / (count − 1); "
        "zero where that leaves nothing",
        "lower",
    ),
    "mce": Convention(f"largest {_GAP}, in {_BINS}", "lower"),
    "ece_classwise": Convention(
        f"mean over classes of the ECE of p(class) against label = class, in {_BINS}, all samples", "lower"
    ),
    "brier_reliability": Convention(
        f"sum over classes of the mean squared gap between p(class) and its frequency, in {_BINS}", "lower"
    ),
    "brier_resolution": Convention("reliability + uncertainty − brier: what telling samples apart gains", "higher"),
    "brier_uncertainty": Convention("Σ f (1 − f) over the class frequencies f: the score of knowing only f", None),
    "smooth_ece": Convention(
        "integral of the Gaussian-smoothed residual, confidence − correctness, at the width that equals it", "lower"
    ),
    "ece_equal_mass": Convention(
        f"mean over samples of {_GAP}, in {{bins}} bins of equal count; equal confidences share a bin",
        "lower",
        needs_every_confidence=True,
    ),
    "aurc": Convention(
        "mean over coverages of the error rate among the most confident; equal confidences in any order",
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
"""Metrics that look at every class of every sample."""


def checked(metrics: Iterable[str]) -> tuple[str, ...]:
    """Known metric names in the order of the table; anything else raises."""
    if isinstance(metrics, str):
        raise TypeError(f"expected a collection of metric names, got the single string {metrics!r}")
    names: Collection[str] = list(metrics)
    unknown = [name for name in names if name not in CONVENTIONS]
    if unknown or not names:
        raise ValueError(f"expected metrics among {', '.join(ALL)}; got {', '.join(unknown) or 'none'}")
    return tuple(name for name in ALL if name in names)
