"""Bias-corrected temperature, vector, matrix and Dirichlet scaling: temperature scaling with more parameters.

Each solves a convex problem for weights W and intercepts b:

    mean loss of W u + b  +  (1/n) · (penalties on squares of b and of W − I),        u = features / T,

where T is the best temperature. With few samples the result is close to temperature scaling; with many the penalties
fade. On the fitted samples the loss is never above that of temperature scaling, nor that of the original logits. If no
temperature is best (all labels have the highest score, or scores do not predict the labels), T is 1, or larger if
misleading logits are large. Only then can the loss be above that of temperature scaling.
"""

from __future__ import annotations

import math
import warnings
from typing import ClassVar

import torch
from torch import Tensor

from ..inputs import Task
from ..rows import Block
from ..values import callers_level
from .calibrator import CalibrationWarning, Calibrator, checked_finite
from .softmax_regression import OwnInputs, Progress, SharedSlope, SoftmaxRegression
from .temperature import best_temperature

PRECISION = 1e-6
"""Largest gradient at the solution; otherwise a warning is given."""


class _Scaling(Calibrator):
    """Shared by all of them: computes features of the logits and solves a softmax regression."""

    FITTED: ClassVar[tuple[str, ...]] = ("weight", "bias")
    PROBLEM: ClassVar[type[SoftmaxRegression]] = SoftmaxRegression
    weight: Tensor
    bias: Tensor

    def _checked(self, logits: Tensor) -> Tensor:
        """Finite logits in float64: a class at −∞ would give all probability to the class of the largest weight."""
        return accurate(checked_finite(logits), len(self.bias))

    def _features(self, logits: Tensor) -> Tensor:
        """Logits minus the mean of their row, which the softmax ignores."""
        return logits - logits.mean(1, keepdim=True)

    def _solution(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, anchor: Tensor, penalty: Tensor
    ) -> Tensor:
        count = len(labels) if weights is None else float(weights.sum())
        problem = self.PROBLEM(inputs, labels, anchor, penalty / count, Progress(type(self).__name__), weights)
        sizes = f"{len(labels):,} samples, {problem.classes:,} classes, {anchor.numel():,} parameters"
        problem.progress.title += f", {sizes}"
        best, self.gradient = problem.minimum()
        if not self.gradient <= PRECISION:
            message = f"{type(self).__name__} stopped at a gradient of {self.gradient:.1g}, above {PRECISION:g}"
            warnings.warn(message, CalibrationWarning, stacklevel=callers_level())
        return best


class VectorScaling(_Scaling):
    """w ∘ z + b: a weight and an intercept for each class, with z centered in each row.

    Args:
        penalty: λ in (λ / n) Σ_k (w_k T − 1)² + b_k². The default is a prior of 22%, 1/√(2λ), on each temperature.

    A constant added to a row of logits changes nothing.

    >>> logits = torch.tensor([[2.0, 0.0]] * 50 + [[0.0, 2.0]] * 50)
    >>> labels = torch.tensor([0] * 40 + [1] * 60)  # the second class is always right, the first in 4 of 5
    >>> VectorScaling(penalty=1e-3).fit(logits, labels).probabilities(logits[:1])
    tensor([[0.8000, 0.2000]])

    Reference: Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    PROBLEM: ClassVar[type[SoftmaxRegression]] = OwnInputs

    def __init__(self, *, penalty: float = 10.0, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.penalty = _positive("penalty", penalty)

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        features = self._features(logits)
        coldness = _coldness(features, labels, weights)
        identity = self._identity(features.new_zeros(logits.shape[1]))
        best = self._solution(features * coldness, labels, weights, identity, torch.full_like(identity, self.penalty))
        weight, bias = self._parts(best)
        return {"weight": weight * coldness, "bias": bias.clone()}

    def _identity(self, zeros: Tensor) -> Tensor:
        """The parameters that change nothing, for intercepts of zero."""
        return torch.stack([torch.ones_like(zeros), zeros], 1)

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias."""
        return parameters[:, 0], parameters[:, 1]

    def _calibrated(self, logits: Tensor) -> Tensor:
        return self._features(self._checked(logits)) * self.weight.double() + self.bias


class BiasCorrectedTemperatureScaling(VectorScaling):
    """β z + b: one weight β = 1/T for all classes, and an intercept for each, with z centered in each row.

    Args:
        penalty: λ in (λ / n) ((β T₀ − 1)² + Σ_k b_k²), where T₀ is the best temperature without intercepts.

    The intercepts correct class frequencies that differ from those of the training set. ``weight`` is β.

    >>> logits = torch.tensor([[2.0, 0.0]] * 50 + [[0.0, 2.0]] * 50)
    >>> labels = torch.tensor([0] * 30 + [1] * 70)  # the second class is always right, the first in 3 of 5
    >>> scaling = BiasCorrectedTemperatureScaling(penalty=1e-3).fit(logits, labels)
    >>> scaling.probabilities(logits[:1])
    tensor([[0.6000, 0.4000]])

    Reference: Alexandari, Kundaje and Shrikumar, "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at
    Label Shift Adaptation", 2020.
    """

    PROBLEM = SharedSlope

    def __init__(self, *, penalty: float = 1.0, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__(penalty=penalty, task=task, classes_dim=classes_dim)

    def _identity(self, zeros: Tensor) -> Tensor:
        return torch.cat([zeros.new_ones(1), zeros])

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        return parameters[0], parameters[1:]


class _MatrixScaling(_Scaling):
    """W u + b for features u, with penalties on the off-diagonal and diagonal of W − I and on b."""

    def _penalties(self, classes: int) -> tuple[float, float, float]:
        """λ of the off-diagonal weights, the diagonal ones and the intercepts."""
        raise NotImplementedError

    def _matrix(self, features: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """W and b for features (n, classes) at their best temperature."""
        classes = features.shape[1]
        inputs = torch.cat([features, torch.ones_like(features[:, :1])], 1)
        identity = torch.eye(classes, classes + 1, dtype=features.dtype, device=features.device)
        off_diagonal, diagonal, intercept = self._penalties(classes)
        penalty = torch.full_like(identity, off_diagonal)
        penalty.fill_diagonal_(diagonal)
        penalty[:, classes] = intercept
        best = self._solution(inputs, labels, weights, identity, penalty)
        return best[:, :classes].contiguous(), best[:, classes].clone()


class MatrixScaling(_MatrixScaling):
    """W z + b with z centered in each row: the logits of other classes also enter.

    Args:
        off_diagonal_penalty: λ in (λ Σ_{j≠k} U_jk² + δ Σ_k (U_kk − 1)² + μ Σ_k b_k²) / n with U = W T.
        diagonal_penalty: δ.
        intercept_penalty: μ.

    A constant added to a row of logits changes nothing.

    Two swapped classes, corrected:

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]] * 50)
    >>> scaling = MatrixScaling(off_diagonal_penalty=0.1, diagonal_penalty=0.1).fit(logits, torch.tensor([1, 0] * 50))
    >>> scaling(logits[:2]).argmax(1)
    tensor([1, 0])

    References: Guo et al., "On Calibration of Modern Neural Networks", 2017; for the penalties on off-diagonal weights
    and intercepts: Kull et al., "Beyond temperature scaling", 2019.
    """

    def __init__(
        self,
        *,
        off_diagonal_penalty: float = 30.0,
        diagonal_penalty: float = 10.0,
        intercept_penalty: float = 10.0,
        task: Task = "multiclass",
        classes_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.off_diagonal_penalty = _positive("off_diagonal_penalty", off_diagonal_penalty)
        self.diagonal_penalty = _positive("diagonal_penalty", diagonal_penalty)
        self.intercept_penalty = _positive("intercept_penalty", intercept_penalty)

    def _penalties(self, classes: int) -> tuple[float, float, float]:
        return self.off_diagonal_penalty, self.diagonal_penalty, self.intercept_penalty

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        features = self._features(logits)
        coldness = _coldness(features, labels, weights)
        weight, bias = self._matrix(features * coldness, labels, weights)
        return {"weight": weight * coldness, "bias": bias}

    def _calibrated(self, logits: Tensor) -> Tensor:
        return self._features(self._checked(logits)) @ self.weight.double().T + self.bias


class DirichletCalibration(MatrixScaling):
    """W log softmax(z) + b: `MatrixScaling`, with its penalties, on log-probabilities, which are not centered.

    It is exact if the probabilities of each class are Dirichlet distributed.

    >>> logits = torch.tensor([[2.0, 0.0]] * 50 + [[0.0, 2.0]] * 50)
    >>> labels = torch.tensor([0] * 40 + [1] * 60)
    >>> low = DirichletCalibration(off_diagonal_penalty=1e-3, diagonal_penalty=1e-3, intercept_penalty=1e-3)
    >>> low.fit(logits, labels).probabilities(logits[:1])
    tensor([[0.8000, 0.2000]])

    Reference: Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
    Dirichlet calibration", 2019.
    """

    def _features(self, logits: Tensor) -> Tensor:
        """log softmax(z)."""
        return logits.log_softmax(1)


class StructuredMatrixScaling(_MatrixScaling):
    """W log softmax(z / T) + b: a matrix whose penalties grow with the number K of classes.

    Args:
        strength: λ in (λ / n) (K (K − 1) Σ_{j≠k} W_jk² + K Σ_k (W_kk − 1)² + K Σ_k b_k²).

    The best temperature T is fitted first and is not penalized. The most numerous parameters have the largest penalty,
    so that with few samples per class the result is close to temperature scaling. No penalty needs to be tuned.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]] * 500)
    >>> scaling = StructuredMatrixScaling().fit(logits, torch.tensor([1, 0] * 500))  # two swapped classes
    >>> scaling(logits[:2]).argmax(1)
    tensor([1, 0])

    Reference: Berta, Holzmüller, Jordan and Bach, "Structured Matrix Scaling for Multi-Class Calibration", 2025: the
    ridge penalty with the weights of its implementation, probmetrics.
    """

    FITTED = ("weight", "bias", "temperature")
    temperature: Tensor

    def __init__(self, *, strength: float = 1.0, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.strength = _positive("strength", strength)

    def _penalties(self, classes: int) -> tuple[float, float, float]:
        each = self.strength * classes
        return each * (classes - 1), each, each

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        temperature = 1 / _coldness(logits, labels, weights)
        weight, bias = self._matrix((logits / temperature).log_softmax(1), labels, weights)
        return {"weight": weight, "bias": bias, "temperature": temperature}

    def _calibrated(self, logits: Tensor) -> Tensor:
        log_p = (self._checked(logits) / self.temperature.double()).log_softmax(1)
        return log_p @ self.weight.double().T + self.bias


def accurate(logits: Tensor, classes: int) -> Tensor:
    """Logits in float64. Raises if the number of classes differs from the fit."""
    if logits.shape[1] != classes:
        raise ValueError(f"expected logits of {classes} classes, as in fit, got {tuple(logits.shape)}")
    return logits.double()


def _coldness(features: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """1/T of the best temperature T; if there is none, 1, or less to scale misleading features down to size 1."""
    fit = best_temperature([Block(features, labels, weights)])
    size = features.std(correction=0) if weights is None else _deviation(features, weights / weights.sum())
    mild = torch.where(fit.at_infinity & (size > 1), 1 / size, 1.0)
    return torch.where(fit.at_zero | fit.at_infinity | fit.is_flat, mild, 1 / fit.temperature)


def _deviation(features: Tensor, share: Tensor) -> Tensor:
    """The standard deviation of all features of weighted samples."""
    mean = features.mean(1) @ share
    return ((features - mean).square().mean(1) @ share).sqrt()


def _positive(name: str, value: float) -> float:
    # At zero the optimum can be infinite or not unique.
    if not 0 < value < math.inf:
        raise ValueError(f"expected {name} above zero and finite, got {value}")
    return float(value)
