"""Ensemble temperature scaling, and the logits of an ensemble of models."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ..rows import Block
from ..values import callers_level, computing_dtype
from . import newton
from .calibrator import CalibrationWarning, Calibrator, checked_finite
from .temperature import best_temperature

BARRIERS = [10.0**-exponent for exponent in range(2, 15, 3)]
"""Weights μ of the barrier. At the last one the loss is within 3e-14 nats of its minimum."""

PRECISION = 1e-9
"""Largest distance of the loss from its minimum, in nats; otherwise a warning is given."""


class EnsembleTemperatureScaling(Calibrator):
    """log(w₁ softmax(z / T) + w₂ softmax(z) + w₃ / K): a mixture of three predictions for K classes.

    T is the best temperature by itself. Then the ``weights`` w ≥ 0 with Σ w = 1 minimize the loss. Each of the two
    problems is convex; both together are not. The ranking of the classes stays.

    ``gradient`` certifies the weights: the loss is at most this far above its minimum over them, in nats.

    Confident predictions are right in three of four cases, and others in all, which no temperature describes:

    >>> logits = torch.tensor([[9.0, 0.0]] * 4 + [[2.0, 0.0]] * 4)
    >>> scaling = EnsembleTemperatureScaling().fit(logits, torch.tensor([0, 0, 0, 1, 0, 0, 0, 0]))
    >>> round(float(scaling.weights.sum()), 12), scaling.gradient < 1e-10
    (1.0, True)

    Reference: Zhang, Kailkhura and Han, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in
    Deep Learning", 2020, with the loss in place of the squared error for the weights.
    """

    FITTED = ("temperature", "weights")
    temperature: Tensor
    weights: Tensor

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        temperature = best_temperature([Block(logits, labels, weights)]).temperature
        parts = _log_parts(logits, temperature)
        of_label = torch.cat([part.gather(1, labels[:, None]) for part in parts], 1).exp()
        count = torch.ones_like(of_label[:, 0]) if weights is None else weights
        best, self.gradient = mixture_weights(of_label, count / count.sum())
        if not self.gradient <= PRECISION:
            message = f"EnsembleTemperatureScaling stopped {self.gradient:.1g} nats above the minimum"
            warnings.warn(message, CalibrationWarning, stacklevel=callers_level())
        return {"temperature": temperature, "weights": best}

    def _calibrated(self, logits: Tensor) -> Tensor:
        parts = _log_parts(checked_finite(logits).double(), self.temperature.double())
        return (torch.stack(parts, -1) + self.weights.double().log()).logsumexp(-1)


def _log_parts(logits: Tensor, temperature: Tensor) -> list[Tensor]:
    """log softmax(z / T), log softmax(z) and −log K, each (n, classes)."""
    uniform = torch.full_like(logits, -math.log(logits.shape[1]))
    return [(logits / temperature).log_softmax(1), logits.log_softmax(1), uniform]


def mixture_weights(p: Tensor, share: Tensor) -> tuple[Tensor, float]:
    """The w ≥ 0 with Σ w = 1 that minimize f(w) = −Σ_i q_i log(w · p_i), and a bound on f(w) − min f.

    Args:
        p: probabilities (n, parts) of the labels by each part of the mixture, in float64, with one above 0 in each row.
        share: q (n,), which sums to 1.

    With g_j = Σ_i q_i p_ij / (w · p_i), Jensen's inequality gives f(w) − f(v) ≤ log Σ_j v_j g_j ≤ max_j g_j − 1 for any
    other v. At the minimum the bound is zero.

    >>> p = torch.tensor([[0.9, 0.5], [0.9, 0.5], [0.1, 0.5]], dtype=torch.float64)
    >>> weights, bound = mixture_weights(p, torch.full((3,), 1 / 3, dtype=torch.float64))
    >>> bool(torch.allclose(p @ weights, torch.tensor([2, 2, 1]).double() / 3)), bound < 1e-10
    (True, True)
    """
    weights = p.new_full((1, p.shape[1]), 1 / p.shape[1])
    for barrier in BARRIERS:
        weights, _ = newton.minimum(_Mixture(p, share, barrier), weights)
    best = weights[0].where(weights[0] > 100 * BARRIERS[-1], torch.zeros_like(weights[0]))
    best = best / best.sum()
    g = (share / (p @ best)) @ p
    return best, float(g.max() / (best @ g) - 1)  # best · g is 1 up to rounding, which the quotient cancels


@dataclass(frozen=True)
class _Mixture:
    """−Σ_i q_i log(w · p_i) + Σ_j w_j − μ Σ_j log w_j for w > 0; as μ → 0 the minimum has Σ w = 1."""

    p: Tensor
    share: Tensor
    barrier: float

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        w = parameters[0].where(parameters[0] > 0, math.nan)  # no step leads there
        mixed = self.p @ w
        value = w.sum() - self.share @ mixed.log() - self.barrier * w.log().sum()
        return value[None], (1 - (self.share / mixed) @ self.p - self.barrier / w)[None]

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        w = parameters[0]
        by_row = self.p / (self.p @ w)[:, None]
        hessian = by_row.T @ (self.share[:, None] * by_row) + torch.diag(self.barrier / w.square())
        step = newton.solved(hessian[None], gradient)
        return step / ((-step / w).max() / 0.99).clamp_min(1)  # at most 99% of the way to w = 0


def ensemble_logits(logits: Tensor, *, classes_dim: int = -1) -> Tensor:
    """Logits of an ensemble, log mean_m softmax(z_m), from those of its members in the first dimension.

    Calibrate these, not the members: an ensemble of calibrated members tends to be underconfident.

    >>> members = torch.tensor([[[0.0, 9.0]], [[9.0, 0.0]]])  # (members, n, classes)
    >>> ensemble_logits(members).softmax(1)
    tensor([[0.5000, 0.5000]])

    Reference: Rahaman and Thiery, "Uncertainty Quantification and Deep Ensembles", 2021.
    """
    if logits.ndim < 2 or not -logits.ndim < classes_dim < logits.ndim or classes_dim == 0:
        shape = tuple(logits.shape)
        raise ValueError(f"expected logits (members, …) with classes in dimension {classes_dim}, got {shape}")
    log_p = logits.to(computing_dtype(logits.dtype)).log_softmax(classes_dim)
    return (log_p.logsumexp(0) - math.log(len(logits))).to(logits.dtype)
