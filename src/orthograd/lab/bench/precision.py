"""How orthogonal the result is, and how well it keeps its length, where it is hardest: g nearly parallel to w."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim import SGD

from ...optimizer import orthogonalize_
from .claim import Claim
from .peers import available

ANGLE = 1e-6
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
RESIDUAL_REACH, LENGTH_REACH = 1e-6, 1e-4


def precision(device: torch.device, *, sizes: tuple[int, ...] = SIZES, angle: float = ANGLE) -> list[Claim]:
    """|cos(g⊥, w)| and |‖ĝ‖/‖g‖ − 1| in float32, measured in float64; the worst of the sizes."""
    errors: dict[str, list[tuple[float, float]]] = {"⊥Grad": []}
    for size in sizes:
        gradient, weight = nearly_parallel(size, angle, device)
        errors["⊥Grad"].append(_errors(gradient, weight, None))
        for name in available():
            errors.setdefault(name, []).append(_errors(gradient, weight, name))
    cosines, lengths = ({name: max(e[i] for e in found) for name, found in errors.items()} for i in (0, 1))
    return [
        Claim(f"|cos(g⊥, w)|, fp32, angle {angle:g}", cosines.pop("⊥Grad"), RESIDUAL_REACH, cosines),
        Claim(f"|‖ĝ‖/‖g‖ − 1|, fp32, angle {angle:g}", lengths.pop("⊥Grad"), LENGTH_REACH, lengths),
    ]


def nearly_parallel(size: int, angle: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """A float32 gradient of length 1 at an angle to its weight."""
    generator = torch.Generator().manual_seed(size)
    weight, other = torch.randn(2, size, generator=generator, dtype=torch.float64)
    other -= (other @ weight) / (weight @ weight) * weight
    gradient = math.cos(angle) * weight / weight.norm() + math.sin(angle) * other / other.norm()
    return gradient.float().to(device), weight.float().to(device)


def _errors(gradient: Tensor, weight: Tensor, peer: str | None) -> tuple[float, float]:
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    if peer is None:
        orthogonalize_([parameter])
    else:
        available()[peer](SGD([parameter], lr=0.0))()
    found, w = parameter.grad.double(), weight.double()
    cosine = (found @ w).abs() / (found.norm() * w.norm()).clamp_min(1e-300)
    length = (found.norm() / gradient.double().norm() - 1).abs()
    return float(cosine), float(length)
