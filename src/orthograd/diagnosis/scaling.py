"""The effect of rescaling one parameter, measured: nothing is inferred from names or types.

A parameter is halved and doubled, which is exact in floating point. It is also moved once in a random direction by its
own norm, which shows how much a change of that size matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..projection import as_real
from .forward import Effect

# Relative tolerance: BatchNorm divides by √(σ² + ε), so with its ε the loss depends on the scale a little.
SAME = 1e-2
# |cos| up to which a gradient counts as orthogonal; with a coarse dtype, its eps if that is larger.
ORTHOGONAL = 1e-3
# In units of the dtype's eps: the error of a few dozen roundings in a row.
ROUNDING = 64.0

Pass = Callable[[], Effect]
"""A repeatable forward pass, such as a `Forward`."""
MEANINGS = {
    "invariant": "scale-invariant: rescaling it does not change the loss, so its gradient has no radial part",
    "rows invariant": "scale-invariant in each row: rescaling a row does not change the loss, so nothing is radial",
    "idle": "no effect on the loss: its gradient is rounding error",
    "outputs": "rescales all outputs: its radial gradient changes the confidence and nothing else",
    "part of outputs": "rescales a part of the outputs in proportion, as a last layer or its bias does",
    "function": "rescaling it changes the function that the network computes",
}
"""Effects of rescaling a parameter, in words."""


class Trial(NamedTuple):
    """The effects of a network unchanged, with a parameter halved, doubled, and moved in a random direction."""

    now: Effect
    halved: Effect
    doubled: Effect
    pushed: Effect


@torch.no_grad()
def role_of(parameter: Tensor, forward: Pass, now: Effect, cosine: float) -> str:
    """The effect of rescaling a parameter, a key of `MEANINGS`.

    ``now`` is the effect of the unchanged network, ``cosine`` the one between gradient and parameter.
    """
    attempt = _trying(parameter, forward)
    trial = Trial(now, attempt(lambda w: w * 0.5), attempt(lambda w: w * 2), attempt(_pushed))
    eps = torch.finfo(parameter.dtype).eps
    if is_idle(trial, eps):
        return "idle"
    if abs(cosine) <= max(ORTHOGONAL, eps) and is_same(trial, eps):
        return "rows invariant" if _has_invariant_rows(parameter, trial, attempt, eps) else "invariant"
    return _role_by_outputs(trial, eps)


def is_idle(trial: Trial, eps: float) -> bool:
    """True if even a random move changes nothing beyond rounding."""
    now, limit = trial.now, ROUNDING * eps
    if now.outputs is not None and _distance(trial.pushed, now) > limit * float(now.outputs.norm()):
        return False
    return all(abs(_rise(other, now)) <= limit * _size(now) for other in trial[1:])


def is_same(trial: Trial, eps: float) -> bool:
    """True if the loss is the same at half and at twice the parameter, and not by chance: the outputs are the same too.

    Outputs that follow the scale also count, if the loss does not depend on it (because it normalizes them).
    """
    now, scaled = trial.now, (trial.halved, trial.doubled)
    rise = max(abs(_rise(other, now)) for other in scaled)
    limit = SAME * min(abs(float(now.loss)), abs(_rise(trial.pushed, now)))
    if now.outputs is not None and degree(trial, SAME) is None:
        is_kept = all(_distance(other, now) <= SAME * _distance(trial.pushed, now) for other in scaled)
        return is_kept and rise <= max(limit, ROUNDING * eps * _size(now))
    return rise <= limit


def degree(trial: Trial, tolerance: float) -> float | None:
    """The degree k > 0 with f(s w) = sᵏ f(w) for the outputs f; None if they are not homogeneous."""
    now, halved, doubled = (effect.outputs for effect in (trial.now, trial.halved, trial.doubled))
    if now is None or halved is None or doubled is None or not float(now.norm()) or not float(doubled.norm()):
        return None
    k = float(torch.log2(doubled.norm() / now.norm()))
    is_homogeneous = all(
        float((other - factor**k * now).norm()) <= tolerance * float(other.norm())
        for factor, other in ((2, doubled), (0.5, halved))
    )
    return k if is_homogeneous and k > SAME else None


def is_linear(trial: Trial, eps: float) -> bool:
    """True if the outputs are a + s b in the scale s: three points on a line, f(2) − 3 f(1) + 2 f(½) = 0."""
    now, halved, doubled = (effect.outputs for effect in (trial.now, trial.halved, trial.doubled))
    if now is None or halved is None or doubled is None:
        return False
    limit = ROUNDING / 4 * eps * float(now.norm() + halved.norm() + doubled.norm())
    bend, change = float((doubled - 3 * now + 2 * halved).norm()), float((doubled - now).norm())
    return bend <= limit and change > 10 * limit


def _role_by_outputs(trial: Trial, eps: float) -> str:
    if degree(trial, ROUNDING / 4 * eps) is not None:
        return "outputs"
    return "part of outputs" if is_linear(trial, eps) else "function"


def _has_invariant_rows(parameter: Tensor, trial: Trial, attempt: Callable[..., Effect], eps: float) -> bool:
    """True if rows can be rescaled separately, as before a BatchNorm, but not before a LayerNorm."""
    if parameter.ndim < 2:
        return False
    halves = torch.arange(len(parameter), device=parameter.device) % 2 == 0
    factors = torch.where(halves, 0.5, 2.0).to(as_real(parameter).dtype).view(-1, *[1] * (parameter.ndim - 1))
    return is_same(trial._replace(doubled=attempt(lambda w: w * factors)), eps)


def _trying(parameter: Tensor, forward: Pass) -> Callable[[Callable[[Tensor], Tensor]], Effect]:
    original = parameter.detach().clone()

    def attempt(change: Callable[[Tensor], Tensor]) -> Effect:
        try:
            parameter.data.copy_(change(original))  # .data keeps a graph of the user valid
            return forward()
        finally:
            parameter.data.copy_(original)

    return attempt


def _pushed(weight: Tensor) -> Tensor:
    """w + ‖w‖ u with a fixed random direction u, drawn from a separate generator."""
    w = as_real(weight).to(weight.device if weight.is_cuda else "cpu", torch.float64)
    dice = torch.Generator(w.device).manual_seed(0)
    direction = torch.randn(w.shape, generator=dice, dtype=torch.float64, device=w.device)
    moved = w + w.norm() / direction.norm() * direction
    return torch.view_as_complex(moved) if weight.is_complex() else moved


def _rise(other: Effect, now: Effect) -> float:
    return float(other.loss.double() - now.loss.double())


def _size(now: Effect) -> float:
    """Size of the numbers whose rounding error enters the loss."""
    return abs(float(now.loss)) + (0.0 if now.outputs is None else float(now.outputs.abs().max()))


def _distance(other: Effect, now: Effect) -> float:
    if other.outputs is None or now.outputs is None or len(other.outputs) != len(now.outputs):
        return float("inf")
    return float((other.outputs - now.outputs).norm())
