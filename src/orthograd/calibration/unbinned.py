"""Metrics without bins: the smooth calibration error, and the risk–coverage curve with its area.

The smooth error is continuous in the confidences. Its residuals are stored on a fixed grid, which is additive over
batches; the smoothing is done once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .binned import sum_by_cell

CELLS = 4096
"""Cells of the grid. The narrowest smoothing is four cells, about 0.001."""


def on_grid(confidence: Tensor, residual: Tensor) -> Tensor:
    """Residuals on CELLS + 1 grid points in float64, each split between the two points next to its confidence."""
    position = confidence.double() * CELLS
    left = position.floor().clamp_max_(CELLS - 1).nan_to_num_(0.0)  # only on ARM does NaN become the integer 0
    to_right = residual.double() * (position - left)
    grid = sum_by_cell(left.long(), residual.double() - to_right, CELLS + 1)
    return grid + sum_by_cell(left.long() + 1, to_right, CELLS + 1)


def smooth_ece(grid: Tensor, samples: float) -> float:
    """The smooth ECE: the σ for which ∫ |mean residual smoothed with a reflected Gaussian of width σ| dt = σ.

    Residuals at a single confidence integrate to their mean at any width:

    >>> residual = torch.tensor([0.4, 0.4])
    >>> round(smooth_ece(on_grid(torch.tensor([0.9, 0.9]), residual), 2), 6)
    0.4

    Reference: Błasiok and Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", 2023.
    """
    if not grid.isfinite().all():
        return math.nan
    spectrum = _spectrum(grid.cpu() / samples)
    narrowest = 4 / CELLS
    at_narrowest = _integral(spectrum, narrowest)
    if at_narrowest <= narrowest:
        return at_narrowest
    # The integral decreases in σ and is at most one, so there is one solution.
    return _zero(lambda sigma: _integral(spectrum, sigma) - sigma, narrowest, 1.0 + 1e-9)


def _zero(falling: Callable[[float], float], low: float, high: float, *, precision: float = 1e-13) -> float:
    """The root of a decreasing function, by the Illinois variant of false position.

    >>> round(_zero(lambda x: 2 - x * x, 0.0, 2.0), 12)
    1.414213562373
    """
    at_low, at_high, moved = falling(low), falling(high), 0
    while high - low > precision:
        secant = (low * at_high - high * at_low) / (at_high - at_low)
        # At least half the precision from each end: near the root the step then crosses it and moves the other end.
        middle = min(max(secant, low + precision / 2), high - precision / 2)
        value = falling(middle)
        if value > 0:
            low, at_low, at_high, moved = middle, value, at_high / (2 if moved < 0 else 1), -1
        else:
            high, at_high, at_low, moved = middle, value, at_low / (2 if moved > 0 else 1), 1
    return (low + high) / 2


def _spectrum(grid: Tensor) -> Tensor:
    """Fourier coefficients of the residuals with their mirror image, which implements reflection at 0 and 1."""
    mirrored = torch.cat([grid, grid[1:-1].flip(0)])
    # A residual exactly at an end is its own mirror image, so it is counted twice.
    mirrored[0], mirrored[CELLS] = 2 * grid[0], 2 * grid[CELLS]
    frequencies = torch.arange(CELLS + 1, dtype=torch.float64)
    # Splitting between two grid points smooths with a triangle, which is divided out.
    triangle = torch.sinc(frequencies / (2 * CELLS)).square()
    spectrum: Tensor = torch.fft.rfft(mirrored)
    return spectrum / triangle


def _integral(spectrum: Tensor, sigma: float) -> float:
    frequencies = torch.arange(CELLS + 1, dtype=torch.float64)
    gaussian = torch.exp(-0.5 * (math.pi * sigma * frequencies).square())
    density = torch.fft.irfft(spectrum * gaussian, n=2 * CELLS)  # residual per cell, smoothed
    inside = density[: CELLS + 1].abs()
    return float(inside.sum() - (inside[0] + inside[-1]) / 2)


def risk_coverage(confidence: Any, correct: Any) -> tuple[Tensor, Tensor]:
    """The risk–coverage curve: coverages 1/n … 1, and the error rate among that share of most confident samples.

    Args:
        confidence: (n,), in any order.
        correct: (n,), booleans, True for correct predictions.

    Returns:
        Coverages and error rates, both (n,) in float64. Samples of equal confidence each count with the mean error
        rate of all of them.

    Raises:
        TypeError: if ``correct`` is not boolean.
        ValueError: for wrong shapes, no samples, or NaN.

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
    """The area under the risk–coverage curve: the mean error rate over all coverages; arguments as in `risk_coverage`.

    >>> aurc(torch.tensor([0.6, 0.8, 0.9]), torch.tensor([False, True, True]))
    tensor(0.1111, dtype=torch.float64)

    Reference: Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", 2019.
    """
    return risk_coverage(confidence, correct)[1].mean()


def augrc(confidence: Any, correct: Any) -> Tensor:
    """The area under the generalized risk–coverage curve; arguments as in `risk_coverage`.

    The generalized risk at a coverage is the number of accepted errors over all samples, not only over accepted ones:
    the probability of a wrong prediction that is not withheld. Here it is averaged over the coverages 1/n … 1. The
    trapezoidal rule of the reference subtracts error rate / 2n.

    >>> augrc(torch.tensor([0.6, 0.8, 0.9]), torch.tensor([False, True, True]))
    tensor(0.1111, dtype=torch.float64)

    Reference: Traub et al., "Overcoming Common Flaws in the Evaluation of Selective Classification Systems", 2024.
    """
    coverage, risk = risk_coverage(confidence, correct)
    return (coverage * risk).mean()


def risk_at_coverage(confidence: Any, correct: Any, coverage: float) -> Tensor:
    """The error rate among the most confident samples that make up a share of all; arguments as in `risk_coverage`.

    ``coverage`` is above 0 and at most 1; the number of samples is rounded up.

    >>> risk_at_coverage(torch.tensor([0.6, 0.7, 0.8, 0.9]), torch.tensor([False, True, False, True]), 0.5)
    tensor(0.5000, dtype=torch.float64)
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"expected a coverage above 0 and at most 1, got {coverage}")
    coverages, risk = risk_coverage(confidence, correct)
    # Up to rounding: 0.07 · 100 is slightly above 7.
    return risk[math.ceil(coverage * len(coverages) * (1 - 1e-12)) - 1]


def accuracy_at_confidence(confidence: Any, correct: Any, threshold: float) -> tuple[Tensor, Tensor]:
    """The accuracy among samples with at least this confidence, and their share; arguments as in `risk_coverage`.

    The accuracy is NaN if there is no such sample.

    >>> accuracy_at_confidence(torch.tensor([0.6, 0.7, 0.8, 0.9]), torch.tensor([False, True, False, True]), 0.7)
    (tensor(0.6667, dtype=torch.float64), tensor(0.7500, dtype=torch.float64))
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"expected a confidence from 0 to 1 as threshold, got {threshold}")
    confidence, correct = _checked(torch.as_tensor(confidence), torch.as_tensor(correct))
    is_accepted = confidence >= threshold
    return correct[is_accepted].double().mean(), is_accepted.double().mean()


def _in_order(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Both sorted by confidence, lowest first."""
    if bool((confidence[1:] >= confidence[:-1]).all()):  # often sorted already
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
        raise ValueError(f"expected confidences without NaN, got nan in row {int(confidence.isnan().nonzero()[0])}")
    return confidence, correct
