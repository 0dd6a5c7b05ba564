"""Answering only when confident: how the error rate falls as the least confident samples are left out."""

from __future__ import annotations

import torch
from torch import Tensor


def risk_coverage(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Coverages 1/n … 1 and the error rate among that share of the most confident samples.

    Samples come in the order of their confidence, the lowest first. Those of equal confidence could come in any order,
    so each of them counts with the error rate of all of them.

    >>> risk_coverage(torch.tensor([0.6, 0.8, 0.9]), torch.tensor([False, True, True]))[1]
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)

    Reference: El-Yaniv and Wiener, "On the Foundations of Noise-free Selective Classification", 2010.
    """
    wrong = correct.flip(0).logical_not().double()
    _, group, size = torch.unique_consecutive(confidence.flip(0), return_inverse=True, return_counts=True)
    shared = (torch.zeros_like(size, dtype=torch.float64).index_add_(0, group, wrong) / size)[group]
    covered = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return covered / len(wrong), shared.cumsum(0) / covered


def aurc(confidence: Tensor, correct: Tensor) -> Tensor:
    """The area under the risk–coverage curve: its mean over the coverages.

    Reference: Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", 2019.
    """
    return risk_coverage(confidence, correct)[1].mean()
