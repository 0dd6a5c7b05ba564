"""Calibration errors from sums per bin: counts, hits (correct predictions) and confidences.

Errors take sums of shape (…, bins), so that resampled sums are evaluated at once. `ece_by_chance`, the expected error
of a perfectly calibrated model, takes sums of shape (bins,).
"""

from __future__ import annotations

import torch
from torch import Tensor


def bin_of(confidence: Tensor, bins: int) -> Tensor:
    """The number b of the bin (b/bins, (b + 1)/bins] that contains a confidence; zero is in the first bin.

    >>> bin_of(torch.tensor([0.0, 0.05, 0.1, 0.55, 1.0]), 10)
    tensor([0, 0, 0, 5, 9])
    """
    # Edges are compared up to rounding: 0.55 · 20 is slightly above 11, but 0.55 lies in (0.5, 0.55].
    edge = bins * (1 - 2 * torch.finfo(confidence.dtype).eps)
    return (confidence * edge).ceil_().long().sub_(1).clamp_(0, bins - 1)


COPIES, MOST_CELLS = 256, 1 << 13
"""A GPU adds to this many copies of each sum, if there are at most so many: additions to one address take turns."""


def sum_by_cell(cell: Tensor, values: Tensor, cells: int) -> Tensor:
    """The sum of the values in each cell.

    >>> sum_by_cell(torch.tensor([0, 2, 0]), torch.tensor([1.0, 2.0, 3.0]), 3)
    tensor([4., 0., 2.])
    """
    if not values.is_cuda or cells > MOST_CELLS:
        return values.new_zeros(cells).index_add_(0, cell, values)
    copy = torch.arange(len(cell), device=cell.device).remainder_(COPIES)
    return values.new_zeros(COPIES * cells).index_add_(0, copy.mul_(cells).add_(cell), values).view(COPIES, -1).sum(0)


def gaps(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """accuracy − mean confidence of each bin; zero for an empty bin."""
    return (hits - confidence) / torch.where(count > 0, count, 1)  # a count of weights can be below 1


def ece(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """Σ_b (n_b / n) |accuracy_b − confidence_b|.

    Ten samples with a confidence of 0.9, five of them correct:

    >>> ece(torch.tensor([10]), torch.tensor([5]), torch.tensor([9.0], dtype=torch.float64))
    tensor(0.4000, dtype=torch.float64)

    Reference: Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """
    return (hits - confidence).abs().sum(-1) / count.sum(-1)


def l2(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """√ Σ_b (n_b / n) (accuracy_b − confidence_b)²."""
    return _squares(count, hits, confidence).sqrt()


def debiased(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """`l2` with the variance of accuracy_b, accuracy_b (1 − accuracy_b) / (n_b − 1), subtracted from each square.

    Reference: Kumar, Liang and Ma, "Verified Uncertainty Calibration", 2019.
    """
    accuracy = hits / count.clamp_min(1)
    variance = accuracy * (1 - accuracy) / (count - 1).clamp_min(1)
    excess = _squares(count, hits, confidence) - (count * variance).sum(-1) / count.sum(-1)
    return excess.clamp_min(0).sqrt()


def mce(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """max_b |accuracy_b − confidence_b|."""
    return gaps(count, hits, confidence).abs().amax(-1)


def equal_mass(confidence: Tensor, correct: Tensor, bins: int, weights: Tensor | None = None) -> Tensor:
    """ECE in bins of equal count, or equal weight, for samples sorted by confidence, lowest first.

    Edges are the confidences at ranks n/bins, 2n/bins, …, rounded up. Equal confidences share a bin, so that their
    order does not matter. Weights (n,) in float64 count as repetitions.
    """
    numbers = torch.arange(1, bins + 1, device=confidence.device)
    residuals = correct.double() - confidence.double()
    if weights is None:
        total: Tensor | int = len(confidence)
        ranks = numbers.mul_(total).add_(bins - 1).div_(bins, rounding_mode="floor") - 1
    else:
        until_weight = weights.cumsum(0)
        total = until_weight[-1]
        # Up to rounding, the first sample at which this share of the weight is complete.
        ranks = torch.searchsorted(until_weight, numbers * total / bins * (1 - 1e-12)).clamp_max_(len(confidence) - 1)
        residuals = residuals * weights
    ends = torch.searchsorted(confidence, confidence[ranks], right=True)
    until = torch.cat([residuals.new_zeros(1), residuals.cumsum(0)])[ends]
    return until.diff(prepend=until.new_zeros(1)).abs().sum() / total


def classwise(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """Mean over classes of the ECE of each; the sums have shape (…, classes, bins)."""
    return ece(count, hits, confidence).mean(-1)


def brier_reliability(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    """Σ over classes and bins of (n_b / n) (frequency − mean p)²; the sums have shape (…, classes, bins)."""
    return _squares(count, hits, confidence).sum(-1)


def brier_uncertainty(count: Tensor, hits: Tensor) -> Tensor:
    """Σ over classes of f (1 − f) with the class frequencies f."""
    frequency = hits.sum(-1) / count.sum(-1)
    return (frequency * (1 - frequency)).sum(-1)


def _squares(count: Tensor, hits: Tensor, confidence: Tensor) -> Tensor:
    return (count * gaps(count, hits, confidence).square()).sum(-1) / count.sum(-1)


def ece_by_chance(count: Tensor, confidence: Tensor, variance: Tensor) -> float:
    """E[ECE] of a calibrated model: each sample is correct with a probability equal to its confidence.

    The hits of a bin then have mean Σc and variance Σc(1 − c). Their mean absolute deviation is approximated by that
    of a binomial with the same count and mean (closed form by de Moivre), times the ratio of the standard deviations.

    A hundred samples with a confidence of one half, so hits are binomial(100, ½):

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(ece_by_chance(100 * one, 50 * one, 25 * one), 4)
    0.0398
    """
    count, confidence, narrowing = _filled(count, confidence, variance)
    return float((_mean_deviation(count, confidence / count) * narrowing).sum() / count.sum())


def ece_by_chance_limit(
    count: Tensor, confidence: Tensor, variance: Tensor, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> float:
    """The ``level`` quantile of the ECE of a calibrated model over test sets, from random draws of the hits."""
    count, confidence, narrowing = _filled(count, confidence, variance)
    generator = torch.Generator().manual_seed(seed)
    probability = (confidence / count).clamp(0, 1).expand(draws, -1).contiguous()
    hits = torch.binomial(count.expand(draws, -1).contiguous(), probability, generator=generator)
    drawn = ((hits - confidence).abs() * narrowing).sum(1) / count.sum()
    return float(drawn.quantile(level))


def _filled(count: Tensor, confidence: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nonempty bins on the CPU: count, confidence, and the ratio of the standard deviation to a binomial's."""
    filled = count > 0
    n, c, v = (values[filled].double().cpu() for values in (count, confidence, variance))
    binomial = c * (1 - c / n)
    return n, c, torch.where(binomial > 0, v / binomial.clamp_min(1e-300), 1).clamp(0, 1).sqrt()


def _mean_deviation(n: Tensor, p: Tensor) -> Tensor:
    """E|X − np| = 2 (m + 1) C(n, m + 1) p^(m+1) (1 − p)^(n−m) with m = ⌊np⌋, for X binomial(n, p)."""
    above = (n * p).floor() + 1  # m + 1
    choose = torch.lgamma(n + 1) - torch.lgamma(above + 1) - torch.lgamma(n - above + 1)
    powers = torch.xlogy(above, p) + torch.xlogy(n - above + 1, 1 - p)
    deviation = 2 * above * (choose + powers).exp()
    return torch.where((p <= 0) | (p >= 1), 0, deviation)
