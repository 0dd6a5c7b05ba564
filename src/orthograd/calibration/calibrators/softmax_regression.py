"""Penalized softmax regression, the problem behind all calibrators of `scaling`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import newton

DENSE = 500
"""Most parameters for which the Hessian is factorized; beyond, conjugate gradients are used."""

CG_ITERATIONS = 500
ROWS = 1 << 22
"""Elements of a block of samples for the Hessian: 32 MiB."""

BLOCK = {"cpu": 1 << 16, "cuda": 1 << 25}
"""Elements of a block of samples in all other passes. On a CPU, 512 KiB per thread, which stays in the cache from one
operation to the next. With whole arrays a pass over 10,000 × 1,000 takes 2.5 times as long."""

QUIET = 10.0
"""Seconds between two lines of progress."""

LOG = logging.getLogger("orthograd")


@dataclass
class Progress:
    """Logs the progress and the expected time of a fit every ten seconds, as a warning of the logger "orthograd"."""

    title: str
    passes: float = 0.0
    gradient: float = float("nan")
    start: float = field(default_factory=time.monotonic)
    last_message: float = field(default_factory=time.monotonic)

    def add(self, share: float) -> None:
        """Count a share of a pass over the samples."""
        self.passes += share
        now = time.monotonic()
        if now - self.last_message >= QUIET:
            self.last_message, seconds, each = now, now - self.start, (now - self.start) / self.passes
            LOG.warning(
                f"{self.title}: {seconds:.0f} s, {self.passes:.3g} passes over the samples, "
                f"gradient {self.gradient:.1g}. "
                f"Most fits take 30 to 500 passes: here {30 * each:.0f} to {500 * each:.0f} s."
            )


@dataclass(frozen=True)
class SoftmaxRegression:
    """f(θ) = mean_i (−log softmax(s_i)_{y_i}) + Σ λ_kd (θ_kd − θ⁰_kd)² with scores s_ik = Σ_d θ_kd x_ikd.

    Here classes share their inputs, x_ikd = x_id: ``inputs`` has shape (n, size). ``anchor`` θ⁰ and ``penalty`` λ have
    shape (classes, size). With λ > 0 the minimum is unique and finite on any data. Means are over ``weights`` (n,).
    """

    inputs: Tensor
    labels: Tensor
    anchor: Tensor
    penalty: Tensor
    progress: Progress = field(default_factory=lambda: Progress("softmax regression"))
    weights: Tensor | None = None

    def minimum(self) -> tuple[Tensor, float]:
        """The minimizer θ (classes, size) and the largest |∂f| there; never worse than the start θ⁰.

        One sample of the second of two classes, with intercepts only: the penalty balances the gain.

        >>> zeros, ones = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
        >>> problem = SoftmaxRegression(ones[:1], torch.tensor([1]), zeros, 0.25 * ones)
        >>> intercepts, gradient = problem.minimum()
        >>> bool(torch.allclose(0.5 * intercepts[1], intercepts.softmax(0)[0])), gradient < 1e-12
        (True, True)
        """
        best, gradient = newton.minimum(self, self.anchor.flatten()[None])
        return best[0].view_as(self.anchor), gradient

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """f (1,) and ∂f (1, classes · size)."""
        theta = parameters.view_as(self.anchor)
        loss, gradient = theta.new_zeros(1), torch.zeros_like(theta)
        for x, y, *weights in self._blocks(self.labels, *self._weights):
            log_p = self._scores(x, theta).log_softmax(1)
            own = log_p.gather(1, y[:, None])[:, 0]
            loss -= own @ weights[0] if weights else own.sum()
            residuals = log_p.exp_()
            residuals[torch.arange(len(y), device=y.device), y] -= 1
            gradient += self._gathered(_times(residuals, weights), x)
        distance, n = theta - self.anchor, self._count
        gradient = gradient / n + 2 * self.penalty * distance
        self.progress.gradient = float(gradient.abs().max())
        return loss / n + (self.penalty * distance.square()).sum(), gradient.flatten()[None]

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step."""
        theta = parameters.view_as(self.anchor)
        p = torch.cat([self._scores(x, theta).softmax(1) for (x,) in self._blocks()])
        if self.anchor.numel() <= DENSE:
            return newton.solved(self._hessian(p)[None], gradient)
        return self._by_conjugate_gradients(p, gradient)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.anchor)

    @property
    def _count(self) -> float:
        return len(self.labels) if self.weights is None else float(self.weights.sum())

    @property
    def _weights(self) -> tuple[Tensor, ...]:
        return () if self.weights is None else (self.weights,)

    def _blocks(self, *more: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Blocks of rows of the inputs and of ``more``: as many as fit the caches, or keep a GPU busy."""
        is_cpu = self.inputs.device.type == "cpu"
        elements = BLOCK["cpu"] * torch.get_num_threads() if is_cpu else BLOCK["cuda"]
        rows = max(1, elements // self.classes)
        for block in zip(*(each.split(rows) for each in (self.inputs, *more)), strict=True):
            yield block
            self.progress.add(len(block[0]) / len(self.inputs))

    def _scores(self, x: Tensor, theta: Tensor) -> Tensor:
        return x @ theta.T

    def _gathered(self, residuals: Tensor, x: Tensor) -> Tensor:
        """Σ_i r_ik x_ikd, the transpose of the scores."""
        return residuals.T @ x

    def _by_class(self, x: Tensor) -> Tensor:
        """x_ikd (rows, classes or 1, size)."""
        return x[:, None]

    def _hessian(self, p: Tensor) -> Tensor:
        """mean_i (p_j δ_jk − p_j p_k) x_ij x_ikᵀ + 2λ."""
        classes, size = self.anchor.shape
        hessian, blocks = p.new_zeros(classes * size, classes * size), p.new_zeros(size, size, classes)
        for some_p, block, *weights in self._hessian_blocks(p):
            x = self._by_class(block)
            by_p = (some_p[:, :, None] * x).flatten(1)
            hessian -= by_p.T @ (by_p * weights[0][:, None] if weights else by_p)
            own = _times(some_p * (1 - some_p), weights)[:, :, None] * x
            blocks += torch.einsum("nkd,nke->dek", own, x.expand_as(own))
        # p_j − p_j² would be rounding error where p_j is near 1, and could be negative.
        hessian.view(classes, size, classes, size).diagonal(dim1=0, dim2=2).copy_(blocks)
        return hessian / self._count + torch.diag(2 * self.penalty.flatten())

    def _hessian_blocks(self, p: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Blocks of rows of p, the inputs and the weights."""
        rows = max(1, ROWS // self.anchor.numel())
        for block in zip(*(each.split(rows) for each in (p, self.inputs, *self._weights)), strict=True):
            yield block
            self.progress.add(len(block[0]) / len(p))

    def _by_conjugate_gradients(self, p: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step by conjugate gradients, preconditioned with the diagonal; more precise for small gradients."""
        diagonal = torch.zeros_like(self.anchor)
        for x, some_p, *weights in self._blocks(p, *self._weights):
            diagonal += self._gathered(_times(some_p * (1 - some_p), weights), x.square())
        diagonal = diagonal / self._count + 2 * self.penalty
        residual = -gradient.view_as(self.anchor)
        enough = residual.norm() * min(0.1, float(residual.norm()) ** 0.5)
        step, direction, previous = torch.zeros_like(residual), torch.zeros_like(residual), None
        for _ in range(CG_ITERATIONS):
            if bool(residual.norm() <= enough):
                break
            preconditioned = residual / diagonal
            power = (residual * preconditioned).sum()
            direction = preconditioned if previous is None else preconditioned + power / previous * direction
            curved = self._curved(p, direction)
            size = power / (direction * curved).sum()
            step, residual, previous = step + size * direction, residual - size * curved, power
        return step.flatten()[None]

    def _curved(self, p: Tensor, direction: Tensor) -> Tensor:
        """The Hessian times a direction."""
        curved = torch.zeros_like(direction)
        for x, some_p, *weights in self._blocks(p, *self._weights):
            change = self._scores(x, direction).mul_(some_p)
            change.addcmul_(some_p, change.sum(1, keepdim=True), value=-1)
            curved += self._gathered(_times(change, weights), x)
        return curved / self._count + 2 * self.penalty * direction


def _times(values: Tensor, weights: list[Tensor]) -> Tensor:
    """Rows times their weights, in place; without weights as they are."""
    return values.mul_(weights[0][:, None]) if weights else values


class OwnInputs(SoftmaxRegression):
    """Each class k has its own input x_ik and an intercept: s_ik = θ_k0 x_ik + θ_k1; inputs (n, classes)."""

    def _scores(self, x: Tensor, theta: Tensor) -> Tensor:
        slope, intercept = theta.T.contiguous()
        return torch.addcmul(intercept, x, slope)

    def _gathered(self, residuals: Tensor, x: Tensor) -> Tensor:
        return torch.stack([(residuals * x).sum(0), residuals.sum(0)], 1)

    def _by_class(self, x: Tensor) -> Tensor:
        return torch.stack([x, torch.ones_like(x)], 2)


class SharedSlope(SoftmaxRegression):
    """One slope β for all classes and an intercept for each: s_ik = θ_0 x_ik + θ_k; inputs (n, classes)."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.anchor) - 1

    def _scores(self, x: Tensor, theta: Tensor) -> Tensor:
        return torch.addcmul(theta[1:], x, theta[0])

    def _gathered(self, residuals: Tensor, x: Tensor) -> Tensor:
        return torch.cat([(residuals * x).sum()[None], residuals.sum(0)])

    def _hessian(self, p: Tensor) -> Tensor:
        """Means of Var_p[x] for β, of p_k (x_k − E_p[x]) for β with b_k, and of p_j δ_jk − p_j p_k; plus 2λ."""
        hessian, own = torch.diag(torch.zeros_like(self.anchor)), torch.zeros_like(self.anchor[1:])
        for some_p, x, *weights in self._hessian_blocks(p):
            centered = x - (some_p * x).sum(1, keepdim=True)
            by_slope = _times(some_p * centered, weights)
            hessian[0, 0] += (by_slope * centered).sum()
            hessian[0, 1:] += by_slope.sum(0)
            own += _times(some_p * (1 - some_p), weights).sum(0)
            hessian[1:, 1:] -= some_p.T @ (some_p * weights[0][:, None] if weights else some_p)
        hessian[1:, 0] = hessian[0, 1:]
        hessian[1:, 1:].diagonal().copy_(own)
        return hessian / self._count + torch.diag(2 * self.penalty)
