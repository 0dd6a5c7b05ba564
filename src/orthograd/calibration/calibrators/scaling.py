"""Vector, matrix and Dirichlet scaling: temperature scaling with weights and an intercept for each class.

Each solves a convex problem for W and b:

    mean loss of W u + b  +  (1/n) · (penalties on squares of b and of W − I),        u = features / T,

where T is the best temperature. With few samples the result is close to temperature scaling; with many the penalties
fade. On the fitted samples the loss is never above that of temperature scaling, nor that of the original logits. If no
temperature is best (all labels have the highest score, or scores do not predict the labels), T is 1, or larger if
misleading logits are large.
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..inputs import Task, callers_level
from ..rows import Block
from .calibrator import CalibrationWarning, Calibrator, refuse_infinite
from .softmax_regression import OwnInputs, Progress, SoftmaxRegression
from .temperature import best_temperature

PRECISION = 1e-6
"""Largest gradient at the solution; otherwise a warning is given."""


class _Scaling(Calibrator):
    """Shared by the three: computes features of the logits and solves a softmax regression."""

    FITTED = ("weight", "bias")
    WEIGHT_DIMENSIONS: ClassVar[int]
    PROBLEM: ClassVar[type[SoftmaxRegression]] = SoftmaxRegression
    weight: Tensor
    bias: Tensor

    def _checked(self, logits: Tensor) -> Tensor:
        """Finite logits in float64: a class at −∞ would give all probability to the class of the largest weight."""
        # A graph cannot branch on its values, and neither can vmap, which raises: there the result is NaN.
        is_graph = torch.compiler.is_compiling() or (logits.is_cuda and torch.cuda.is_current_stream_capturing())
        with suppress(RuntimeError):
            if not is_graph:
                refuse_infinite(logits)
        return accurate(logits, len(self.bias))

    def _features(self, logits: Tensor) -> Tensor:
        """Logits minus the mean of their row, which the softmax ignores."""
        return logits - logits.mean(1, keepdim=True)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Raise for a vector instead of a matrix and the reverse, which would broadcast without an error."""
        weight = state_dict.get(prefix + "weight")
        dimensions = self.WEIGHT_DIMENSIONS + (self.form.task == "multilabel")
        if weight is None or weight.ndim == dimensions:
            super()._load_from_state_dict(state_dict, prefix, *args)
            return
        *_, errors = args
        errors.append(
            f"{prefix}weight of {type(self).__name__}: expected {dimensions} dimensions, "
            f"got shape {tuple(weight.shape)}; another type of calibrator saved it"
        )

    def _solution(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, anchor: Tensor, penalty: Tensor
    ) -> Tensor:
        sizes = f"{len(labels):,} samples, {len(anchor):,} classes, {anchor.numel():,} parameters"
        progress = Progress(f"{type(self).__name__}, {sizes}")
        count = len(labels) if weights is None else float(weights.sum())
        problem = self.PROBLEM(inputs, labels, anchor, penalty / count, progress, weights)
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

    WEIGHT_DIMENSIONS = 1
    PROBLEM = OwnInputs

    def __init__(self, *, penalty: float = 10.0, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.penalty = _positive("penalty", penalty)

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        features = self._features(logits)
        coldness = _coldness(features, labels, weights)
        identity = torch.stack([features.new_ones(logits.shape[1]), features.new_zeros(logits.shape[1])], 1)
        best = self._solution(features * coldness, labels, weights, identity, torch.full_like(identity, self.penalty))
        return {"weight": best[:, 0] * coldness, "bias": best[:, 1].clone()}

    def _calibrated(self, logits: Tensor) -> Tensor:
        return self._features(self._checked(logits)) * self.weight.double() + self.bias


class MatrixScaling(_Scaling):
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

    WEIGHT_DIMENSIONS = 2

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

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        features = self._features(logits)
        coldness = _coldness(features, labels, weights)
        inputs = torch.cat([features * coldness, torch.ones_like(features[:, :1])], 1)
        classes = logits.shape[1]
        identity = torch.eye(classes, classes + 1, dtype=features.dtype, device=features.device)
        penalty = torch.full_like(identity, self.off_diagonal_penalty)
        penalty.fill_diagonal_(self.diagonal_penalty)
        penalty[:, classes] = self.intercept_penalty
        best = self._solution(inputs, labels, weights, identity, penalty)
        return {"weight": best[:, :classes] * coldness, "bias": best[:, classes].clone()}

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
