"""The calibration error that chance alone makes: what a perfectly calibrated model of this size would show."""

from __future__ import annotations

import torch
from torch import Tensor


def ece_by_chance(count: Tensor, confidence: Tensor, variance: Tensor) -> float:
    """E[ECE] if every sample were correct with just its confidence as probability.

    In a bin the hits then have mean Σc and variance Σc(1 − c). Their mean absolute deviation is that of a binomial
    with the same count and mean, known in closed form (de Moivre), times the ratio of the standard deviations.

    A hundred samples at a confidence of one half, so hits that are binomial(100, ½):

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(ece_by_chance(100 * one, 50 * one, 25 * one), 4)
    0.0398
    """
    count, confidence, narrowing = _filled(count, confidence, variance)
    return float((_mean_deviation(count, confidence / count) * narrowing).sum() / count.sum())


def ece_by_chance_limit(
    count: Tensor, confidence: Tensor, variance: Tensor, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> float:
    """The level-quantile of that ECE over test sets, by drawing hits bin by bin."""
    count, confidence, narrowing = _filled(count, confidence, variance)
    generator = torch.Generator().manual_seed(seed)
    probability = (confidence / count).clamp(0, 1).expand(draws, -1).contiguous()
    hits = torch.binomial(count.expand(draws, -1).contiguous(), probability, generator=generator)
    drawn = ((hits - confidence).abs() * narrowing).sum(1) / count.sum()
    return float(drawn.quantile(level))


def _filled(count: Tensor, confidence: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bins that hold anything, on the CPU, and how much narrower their hits spread than a binomial's."""
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
