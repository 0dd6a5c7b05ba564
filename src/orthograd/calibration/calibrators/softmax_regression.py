"""Softmax regression with a penalty towards given parameters: what vector, matrix and Dirichlet calibration solve."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import newton

DENSE = 500
"""Up to so many parameters the Hessian is written down and factorised; beyond, conjugate gradients."""

CG_ITERATIONS = 500
ROWS = 1 << 22
"""Elements of a block of samples, for the Hessian's sake: 32 MiB."""


@dataclass(frozen=True)
class SoftmaxRegression:
    """f(θ) = mean_i (−log softmax(s_i)_{y_i}) + Σ λ_kd (θ_kd − θ⁰_kd)² with scores s_ik = Σ_d θ_kd x_ikd.

    ``inputs`` x has shape (n, classes, size), or (n, 1, size) where the classes share them; ``anchor`` θ⁰ and
    ``penalty`` λ have shape (classes, size). With λ > 0 the minimum is unique and finite on whatever data.
    """

    inputs: Tensor
    labels: Tensor
    anchor: Tensor
    penalty: Tensor

    def minimum(self) -> tuple[Tensor, float]:
        """θ (classes, size) and the largest |∂f| there; never worse than θ⁰, where it starts.

        One sample of the second of two classes, intercepts alone: the penalty halts them where it balances the gain.

        >>> zeros, ones = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
        >>> problem = SoftmaxRegression(ones[:1, None], torch.tensor([1]), zeros, 0.25 * ones)
        >>> intercepts, gradient = problem.minimum()
        >>> bool(torch.allclose(0.5 * intercepts[1], intercepts.softmax(0)[0])), gradient < 1e-12
        (True, True)
        """
        found, gradient = newton.minimum(self, self.anchor.flatten()[None])
        return found[0].view_as(self.anchor), gradient

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """f (1,) and ∂f (1, classes · size)."""
        distance = parameters.view_as(self.anchor) - self.anchor
        log_p = self._scores(parameters).log_softmax(1)
        loss = torch.nn.functional.nll_loss(log_p, self.labels) + (self.penalty * distance.square()).sum()
        residuals = log_p.exp()
        residuals[torch.arange(len(residuals), device=residuals.device), self.labels] -= 1
        gradient = self._gathered(residuals) + 2 * self.penalty * distance
        return loss[None], gradient.flatten()[None]

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step."""
        p = self._scores(parameters).softmax(1)
        if self.anchor.numel() <= DENSE:
            return newton.solved(self._hessian(p)[None], gradient)
        return self._by_conjugate_gradients(p, gradient)

    def _scores(self, parameters: Tensor) -> Tensor:
        return torch.einsum("nkd,kd->nk", self.inputs, parameters.view_as(self.anchor))

    def _gathered(self, residuals: Tensor) -> Tensor:
        """mean_i r_ik x_ikd, the transpose of the scores."""
        return torch.einsum("nk,nkd->kd", residuals, self.inputs) / len(residuals)

    def _hessian(self, p: Tensor) -> Tensor:
        """mean_i (p_j δ_jk − p_j p_k) x_ij x_ikᵀ + 2λ."""
        classes, size = self.anchor.shape
        hessian, blocks = p.new_zeros(classes * size, classes * size), p.new_zeros(size, size, classes)
        rows = max(1, ROWS // self.anchor.numel())
        for some_p, x in zip(p.split(rows), self.inputs.split(rows), strict=True):
            weighted = (some_p[:, :, None] * x).flatten(1)
            hessian -= weighted.T @ weighted
            own = (some_p * (1 - some_p))[:, :, None] * x
            blocks += torch.einsum("nkd,nke->dek", own, x.expand_as(own))
        # A difference of p_j and p_j² would be rounding alone where p_j is near 1, and might be negative.
        hessian.view(classes, size, classes, size).diagonal(dim1=0, dim2=2).copy_(blocks)
        return hessian / len(p) + torch.diag(2 * self.penalty.flatten())

    def _by_conjugate_gradients(self, p: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step to a precision that rises as the gradient falls, preconditioned with the Hessian's diagonal."""
        diagonal = torch.einsum("nk,nkd->kd", p * (1 - p), self.inputs.square()) / len(p) + 2 * self.penalty
        residual = -gradient.view_as(self.anchor)
        enough = residual.norm() * min(0.1, float(residual.norm()) ** 0.5)
        step, direction, previous = torch.zeros_like(residual), torch.zeros_like(residual), None
        for _ in range(CG_ITERATIONS):
            preconditioned = residual / diagonal
            power = (residual * preconditioned).sum()
            direction = preconditioned if previous is None else preconditioned + power / previous * direction
            curved = self._curved(p, direction)
            length = power / (direction * curved).sum()
            step, residual, previous = step + length * direction, residual - length * curved, power
            if bool(residual.norm() <= enough):
                break
        return step.flatten()[None]

    def _curved(self, p: Tensor, direction: Tensor) -> Tensor:
        """The Hessian times a direction."""
        change = p * self._scores(direction)
        return self._gathered(change - p * change.sum(1, keepdim=True)) + 2 * self.penalty * direction
