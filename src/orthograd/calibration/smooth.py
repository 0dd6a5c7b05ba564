"""Smooth calibration error: no bins, so no jumps where a confidence crosses an edge.

Residuals are spread over a fixed grid, which adds up over batches; the smoothing is done once at the end.

Reference: Błasiok and Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

CELLS = 4096
"""Narrowest smoothing: four cells, about 0.001."""


def on_grid(confidence: Tensor, residual: Tensor) -> Tensor:
    """Residuals shared between the two grid points around their confidence, CELLS + 1 sums in float64."""
    position = confidence.double() * CELLS
    left = position.floor().clamp_max_(CELLS - 1).nan_to_num_(0.0)  # as an integer NaN is zero on ARM alone
    to_right = residual.double() * (position - left)
    grid = to_right.new_zeros(CELLS + 1)
    grid.index_add_(0, left.long(), residual.double() - to_right)
    return grid.index_add_(0, left.long() + 1, to_right)


def smooth_ece(grid: Tensor, samples: int) -> float:
    """The σ for which ∫ |mean residual smoothed with a reflected Gaussian of width σ| dt = σ.

    All residuals at one confidence, smoothed, integrate to their mean again, whatever the width:

    >>> residual = torch.tensor([0.4, 0.4])
    >>> round(smooth_ece(on_grid(torch.tensor([0.9, 0.9]), residual), 2), 6)
    0.4
    """
    if not grid.isfinite().all():
        return math.nan
    spectrum = _spectrum(grid.cpu() / samples)
    narrowest = 4 / CELLS
    at_narrowest = _integral(spectrum, narrowest)
    if at_narrowest <= narrowest:
        return at_narrowest
    # The integral falls as σ grows, and is at most one: there is one point where they meet.
    return _zero(lambda sigma: _integral(spectrum, sigma) - sigma, narrowest, 1.0 + 1e-9)


def _zero(falling: Callable[[float], float], low: float, high: float, *, precision: float = 1e-13) -> float:
    """Where a falling function is zero, by false position: whichever end stays twice counts half (Illinois).

    >>> round(_zero(lambda x: 2 - x * x, 0.0, 2.0), 12)
    1.414213562373
    """
    at_low, at_high, moved = falling(low), falling(high), 0
    while high - low > precision:
        secant = (low * at_high - high * at_low) / (at_high - at_low)
        # Not closer to an end: once that is at the zero, such a step goes past it and brings the other end.
        middle = min(max(secant, low + precision / 2), high - precision / 2)
        value = falling(middle)
        if value > 0:
            low, at_low, at_high, moved = middle, value, at_high / (2 if moved < 0 else 1), -1
        else:
            high, at_high, at_low, moved = middle, value, at_low / (2 if moved > 0 else 1), 1
    return (low + high) / 2


def _spectrum(grid: Tensor) -> Tensor:
    """Fourier coefficients of the residuals and their mirror image, which is what reflection at 0 and 1 is."""
    mirrored = torch.cat([grid, grid[1:-1].flip(0)])
    # A residual exactly at an end is its own mirror image: once there, it must count as two halves that meet.
    mirrored[0], mirrored[CELLS] = 2 * grid[0], 2 * grid[CELLS]
    frequencies = torch.arange(CELLS + 1, dtype=torch.float64)
    # Sharing between two grid points is itself a smoothing, by a triangle; it is divided out.
    triangle = torch.sinc(frequencies / (2 * CELLS)).square()
    spectrum: Tensor = torch.fft.rfft(mirrored)
    return spectrum / triangle


def _integral(spectrum: Tensor, sigma: float) -> float:
    frequencies = torch.arange(CELLS + 1, dtype=torch.float64)
    gaussian = torch.exp(-0.5 * (math.pi * sigma * frequencies).square())
    density = torch.fft.irfft(spectrum * gaussian, n=2 * CELLS)  # residual per cell, smoothed
    inside = density[: CELLS + 1].abs()
    return float(inside.sum() - (inside[0] + inside[-1]) / 2)
