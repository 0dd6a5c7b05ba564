"""What measuring calibration costs, beside the same formulas as whole-tensor operations, and whether it drifts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from ...calibration import ALL, PAPER, Evaluation
from .claim import Claim, interleaved, ratios

SPEED_REACH, DRIFT_REACH = 0.3, 1e-9
FOUR = ("loss", "ece", "brier", "entropy")


def evaluation_cost(*, samples: int = 1_000_000, classes: int = 10, rounds: int = 7) -> list[Claim]:
    """Seconds of an evaluation over those of `plain`."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(samples, classes, generator=generator)
    labels = torch.randint(classes, (samples,), generator=generator)
    contenders: dict[str, Callable[[], object]] = {"plain": partial(plain, logits, labels)}
    for name, metrics in (("these four", FOUR), ("the paper's ten", PAPER), ("all of them", ALL)):
        contenders[name] = partial(_evaluated, logits, labels, metrics)
    if find_spec("torchmetrics") is not None:
        contenders[f"torchmetrics {version('torchmetrics')}"] = partial(with_torchmetrics, logits, labels)
    found = ratios(interleaved(contenders, rounds=rounds, settle=lambda: None), "plain")
    what = f"loss, ECE, Brier score and entropy of {samples:,} × {classes} logits, time over plain torch"
    return [
        Claim(what, found.pop("these four"), SPEED_REACH, {k: v for k, v in found.items() if "torchmetrics" in k}),
        Claim("the same for the paper's ten metrics", found["the paper's ten"]),
        Claim(f"the same for all {len(ALL)} metrics", found["all of them"]),
    ]


def ece_drift(*, samples: int = 40_000_000) -> list[Claim]:
    """How far the ECE is off where the confidence is 0.9 and the accuracy one half."""
    batch = 2_000_000
    logits = torch.tensor([[9.0, 1.0]], dtype=torch.float64).log().expand(batch, 2)
    labels = torch.arange(batch) % 2
    evaluation = Evaluation(metrics=["ece"])
    for _ in range(samples // batch):
        evaluation.update(logits, labels)
    return [
        Claim(
            f"|ECE − 0.4| of {samples:,} samples of confidence 0.9 and accuracy 0.5",
            abs(float(evaluation.compute().ece or 0) - 0.4),
            DRIFT_REACH,
            {"sums in float32": abs(_float32_ece(samples) - 0.4)},
        )
    ]


def plain(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Loss, ECE, Brier score and entropy as one would write them down."""
    log_probabilities = logits.log_softmax(1)
    probabilities = log_probabilities.exp()
    loss = functional.nll_loss(log_probabilities, labels)
    entropy = -(probabilities * log_probabilities).sum(1).mean()
    one_hot = functional.one_hot(labels, logits.shape[1]).to(probabilities.dtype)
    brier = (probabilities - one_hot).square().sum(1).mean()
    confidence, predicted = probabilities.max(1)
    return loss, _binned_ece(confidence, predicted == labels), brier, entropy


def with_torchmetrics(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The ECE by torchmetrics, the rest by hand."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    probabilities = logits.softmax(1)
    ece = multiclass_calibration_error(logits, labels, logits.shape[1], n_bins=10, validate_args=False)
    brier = (probabilities - functional.one_hot(labels, logits.shape[1])).square().sum(1).mean()
    return functional.cross_entropy(logits, labels), ece, brier, torch.special.entr(probabilities).sum(1).mean()


def _evaluated(logits: Tensor, labels: Tensor, metrics: tuple[str, ...]) -> object:
    evaluation = Evaluation(metrics=metrics)
    evaluation.update(logits, labels)
    return evaluation.compute()


def _binned_ece(confidence: Tensor, correct: Tensor, bins: int = 10) -> Tensor:
    cell = torch.bucketize(confidence, torch.linspace(0, 1, bins + 1)[1:-1])
    gap = confidence.new_zeros(bins).scatter_add_(0, cell, correct.to(confidence.dtype))
    gap -= confidence.new_zeros(bins).scatter_add_(0, cell, confidence)
    return gap.abs().sum() / len(confidence)


def _float32_ece(samples: int) -> float:
    return float(_binned_ece(torch.full((samples,), 0.9), torch.arange(samples) % 2 == 0))
