"""What several tests need."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖ in float64, and zero if both are zero."""
    found, expected = found.double().cpu(), expected.double().cpu()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-300))


def cosine(left: Tensor, right: Tensor) -> float:
    """|cos| of the angle between two tensors, in float64."""
    left, right = left.double().flatten(), right.double().flatten()
    return float((left @ right).abs() / (left.norm() * right.norm()).clamp_min(1e-300))


def at_angle(angle: float, size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """A gradient of length 1 at an angle to its weight."""
    weight, other = torch.randn(2, size, dtype=torch.float64)
    other -= (other @ weight) / (weight @ weight) * weight
    gradient = math.cos(angle) * weight / weight.norm() + math.sin(angle) * other / other.norm()
    return gradient.to(dtype), weight.to(dtype)
