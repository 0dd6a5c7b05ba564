"""Answering only when confident: how the error rate falls as the least confident samples are left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def risk_coverage(confidence: Any, correct: Any) -> tuple[Tensor, Tensor]:
    """Coverages 1/n … 1 and the error rate among that share of the most confident samples.

    Args:
        confidence: a number for each sample (n,), in any order.
        correct: whether each prediction is right, as booleans (n,).

    Samples of equal confidence could be left out in any order, so each of them counts with the error rate of all.

    >>> risk_coverage(torch.tensor([0.6, 0.8, 0.9]), torch.tensor([False, True, True]))[1]
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)

    Reference: El-Yaniv and Wiener, "On the Foundations of Noise-free Selective Classification", 2010.
    """
    confidence, correct = _in_order(*_checked(torch.as_tensor(confidence), torch.as_tensor(correct)))
    wrong = correct.flip(0).logical_not().double()
    _, group, size = torch.unique_consecutive(confidence.flip(0), return_inverse=True, return_counts=True)
    shared = (torch.zeros_like(size, dtype=torch.float64).index_add_(0, group, wrong) / size)[group]
    covered = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return covered / len(wrong), shared.cumsum(0) / covered


def aurc(confidence: Any, correct: Any) -> Tensor:
    """The area under the risk–coverage curve: its mean over the coverages.

    Reference: Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", 2019.
    """
    return risk_coverage(confidence, correct)[1].mean()


def _in_order(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest confidence first."""
    if bool((confidence[1:] >= confidence[:-1]).all()):  # as an evaluation has them: to look is cheaper than to sort
        return confidence, correct
    order = confidence.argsort()
    return confidence[order], correct[order]


def _checked(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    if confidence.ndim != 1 or confidence.shape != correct.shape:
        shapes = f"{tuple(confidence.shape)} and {tuple(correct.shape)}"
        raise ValueError(f"expected confidence (n,) and correct (n,), got {shapes}")
    if len(confidence) == 0:
        raise ValueError("expected at least one sample, got none")
    if correct.dtype != torch.bool:
        raise TypeError(f"expected correct as booleans, got {correct.dtype}")
    if bool(confidence.isnan().any()):
        raise ValueError(
            f"expected confidences that are numbers, got nan in row {int(confidence.isnan().nonzero()[0])}"
        )
    return confidence, correct
