"""Cases on which calibration libraries are known to disagree, each with the value derived by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

REFUSED = "error or nan"
"""The expected outcome for input that has no value: an error, or NaN, either of which a caller notices."""


@dataclass(frozen=True)
class Case:
    """Scores and labels, the expected value of a metric with its derivation, and values of other conventions."""

    name: str
    metric: str  # ece, mce, loss, brier, smooth_ece, aurc, or temperature: the probability of class 0 after scaling
    scores: Tensor
    labels: Tensor
    expected: float | str
    derivation: str
    from_logits: bool = False
    tolerance: float = 1e-6
    conventions: Mapping[str, float] = field(default_factory=dict)  # another definition, and its value


def rows(*confidences: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Probabilities of three classes: class 0 has the confidence, class 1 the rest."""
    p = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([p, 1 - p, torch.zeros_like(p)], 1).to(dtype)


def labels(*numbers: int) -> Tensor:
    """Labels: 0 is a correct prediction in `rows`, others are wrong."""
    return torch.tensor(numbers)


def filled(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Four more samples, calibrated: confidence 0.75, three correct. Every class then has a label.

    Some libraries leave out classes without labels, or take three columns with two labels for a binary problem. The
    added samples keep that from mixing with what a case is about.
    """
    others = torch.full((4, 3), 0.125, dtype=scores.dtype)
    others[torch.arange(4), labels(0, 1, 2, 0)] = 0.75
    return torch.cat([scores, others]), torch.cat([truth, labels(0, 1, 2, 1)])


def half_correct(n: int) -> Tensor:
    """Labels of which half are 0, a quarter 1 and a quarter 2."""
    return labels(0, 0, 1, 2).repeat(n // 4)


def scaled(size: float, *, truth: Tensor, name: str, expected: float, derivation: str) -> Case:
    """A case of temperature scaling: every sample has the logits (size, 0, 0)."""
    logits = torch.tensor([[size, 0.0, 0.0]]).repeat(len(truth), 1)
    return Case(name, "temperature", logits, truth, expected, derivation, from_logits=True, tolerance=1e-3)


OPEN = "bins [lower, upper)"
EXTRA = "bins [lower, upper), and a confidence of 1 alone in an extra bin"
LN6 = "six of eight labels are class 0, so the best p is 3/4: e^(z/T) = 6, T = z / ln 6"
SIX = labels(0, 0, 0, 0, 0, 0, 1, 2)
WRONG_FIRST = (50 + sum(50 / k for k in range(51, 101))) / 100  # error rates 1, then 50/k

CASES = (
    Case(
        "a confidence of exactly 1",
        "ece",
        *filled(rows(1.0, 0.95), labels(1, 0)),
        0.475 / 3,
        "both are in the last bin: accuracy 1/2, confidence 0.975; they are a third of the samples",
        conventions={EXTRA: 0.525 / 3},
    ),
    Case(
        "a confidence on an edge",
        "ece",
        *filled(torch.tensor([[0.5, 0.25, 0.25], [0.55, 0.25, 0.2]], dtype=torch.float64), labels(2, 0)),
        0.475 / 3,
        "bins (lower, upper] as Guo et al. define them: 0.5 and 0.55 are in two bins, (0.5 + 0.45) / 2, of a third",
        conventions={OPEN: 0.025 / 3},
    ),
    Case(
        "two confidences of 0.6, apart by rounding",
        "ece",
        *filled(rows(0.6, 0.2 + 0.4), labels(1, 0)),
        0.1 / 3,
        "0.2 + 0.4 is above 0.6 by 1e-16; in any convention they share a bin: |1/2 − 0.6|, of a third",
    ),
    Case(
        "ties between classes",
        "ece",
        *filled(torch.tensor([[0.45, 0.45, 0.1]] * 4, dtype=torch.float64), labels(0, 0, 0, 1)),
        0.15,
        "the first of equal classes is predicted, as by argmax: |3/4 − 0.45|, of a half",
        conventions={"the last of equal classes is predicted": 0.1},
    ),
    Case(
        "labels of one class only",
        "ece",
        rows(0.8, 0.8, 0.8, 0.8),
        labels(0, 0, 0, 0),
        0.2,
        "accuracy 1, confidence 0.8",
    ),
    Case(
        "labels of one class only",
        "loss",
        rows(0.8, 0.8, 0.8, 0.8),
        labels(0, 0, 0, 0),
        -math.log(0.8),
        "−ln 0.8",
    ),
    Case(
        "nine empty bins of ten",
        "mce",
        rows(0.95, 0.95, 0.95, 0.95),
        labels(0, 0, 1, 2),
        0.45,
        "empty bins have no gap; the other has |1/2 − 0.95|",
    ),
    Case("a single sample", "ece", rows(0.75), labels(0), 0.25, "|1 − 0.75|"),
    Case(
        "one confidence, 0.9 in float32",
        "ece",
        rows(0.9, dtype=torch.float32).repeat(64, 1),
        half_correct(64),
        0.4,
        "all are in one bin, whichever side of the edge that is: |1/2 − 0.9|",
    ),
    Case(
        "4,096 samples in float16",
        "ece",
        rows(0.85, dtype=torch.float16).repeat(4096, 1),
        half_correct(4096),
        0.85009765625 - 0.5,
        "0.85 in float16 is 0.85009765625; half are correct. A sum in float16 would stop growing at 2048",
    ),
    Case(
        "a probability that is NaN",
        "ece",
        *filled(torch.tensor([[0.8, 0.1, 0.1], [math.nan, 0.5, 0.5]], dtype=torch.float64), labels(0, 1)),
        REFUSED,
        "a NaN has no bin",
    ),
    Case(
        "a logit that is NaN",
        "ece",
        torch.tensor([[2.0, 0.0, 0.0], [math.nan, 1.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64),
        labels(0, 1, 2),
        REFUSED,
        "its softmax is NaN",
        from_logits=True,
    ),
    Case(
        "a label with probability 0",
        "loss",
        rows(1.0, 1.0),
        labels(0, 1),
        math.inf,
        "−ln 0 is infinite: the model excluded what happened",
        conventions={
            "probabilities clipped at the machine epsilon": -math.log(2.0**-52) / 2,
            "log p clipped at the smallest float32": -math.log(2.0**-126) / 2,
        },
    ),
    Case(
        "a label 200 below the largest logit",
        "loss",
        torch.tensor([[0.0, 200.0, 0.0]], dtype=torch.float64),
        labels(0),
        200.0,
        "ln(e²⁰⁰ + 2) − 0 = 200; its probability, 1e-87, is zero in float32",
        from_logits=True,
    ),
    Case(
        "Brier score of three classes",
        "brier",
        torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64),
        labels(0),
        0.06,
        "0.2² + 0.1² + 0.1², the sum over classes of Brier (1950)",
    ),
    Case(
        "Brier score of two classes",
        "brier",
        torch.tensor([[0.8, 0.2]], dtype=torch.float64),
        labels(0),
        0.08,
        "0.2² + 0.2², the same sum",
        conventions={"half the sum for two classes": 0.04},
    ),
    Case(
        "one confidence for all",
        "smooth_ece",
        rows(0.7, dtype=torch.float32).repeat(100, 1),
        half_correct(100),
        0.2,
        "residuals of mean 0.7 − 1/2 at one point: smoothing moves them and keeps their sum",
        tolerance=2e-3,  # a grid and a search over widths
    ),
    Case(
        "equal confidences, correct samples first",
        "aurc",
        rows(0.8).repeat(100, 1),
        (torch.arange(100) >= 50).long(),
        0.5,
        "equal confidences cannot be ordered, so every coverage has the error rate of all, 1/2",
        conventions={
            "the order of a sort decides, here wrong samples first": WRONG_FIRST,
            "the order of a sort decides, here correct samples first": 1 - WRONG_FIRST,
        },
        tolerance=2e-3,  # a sum or the trapezoidal rule
    ),
    scaled(4.0, truth=SIX, name="logits of size 4", expected=0.75, derivation=LN6),
    scaled(4000.0, truth=SIX, name="logits of size 4,000", expected=0.75, derivation=f"{LN6} = 2,232"),
    scaled(0.004, truth=SIX, name="logits of size 0.004", expected=0.75, derivation=f"{LN6} = 0.0022"),
    scaled(
        4.0,
        truth=labels(0, 0, 1, 1, 1, 2, 2, 2),
        name="scores that mislead",
        expected=1 / 3,
        derivation="class 0 is true in 1/4 < 1/3, so the loss falls as T → ∞, where p is 1/3; T < 0 reverses ranks",
    ),
    Case(
        "scores that are always right",
        "temperature",
        4 * torch.eye(3).repeat(3, 1),
        labels(0, 1, 2).repeat(3),
        1.0,
        "the loss falls as T → 0, where p is 1",
        from_logits=True,
        tolerance=1e-3,
    ),
)
