"""What several tests need."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused steps divide small tensors into several chunks, as they do large ones: the interpreter is slow."""
    monkeypatch.setattr("orthograd.engine.step_plan.SMALLEST_CHUNK", 512)


@pytest.fixture(scope="session")
def frost(request: pytest.FixtureRequest) -> Iterator[list[Tensor]]:
    """The photographs of frost, in the data folder: fetched once and kept between sessions."""
    from orthograd.lab.data.corruption import fetch_frost, frost_textures

    with pytest.MonkeyPatch.context() as patch:
        try:
            frost_textures()
        except FileNotFoundError:
            patch.setenv("ORTHOGRAD_DATA", str(request.config.cache.mkdir("orthograd")))
            try:
                fetch_frost()
            except RuntimeError as error:
                pytest.skip(f"the photographs of frost cannot be had here: {error}")
        yield frost_textures()


def relative_error(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖ in float64, and zero if both are zero."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-300))


def cosine(left: Tensor, right: Tensor) -> float:
    """|cos| of the angle between two tensors, in float64."""
    left, right = left.detach().double().flatten(), right.detach().double().flatten()
    return float((left @ right).abs() / (left.norm() * right.norm()).clamp_min(1e-300))


def at_angle(angle: float, size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """A gradient of length 1 at an angle to its weight."""
    weight, other = torch.randn(2, size, dtype=torch.float64)
    other -= (other @ weight) / (weight @ weight) * weight
    gradient = math.cos(angle) * weight / weight.norm() + math.sin(angle) * other / other.norm()
    return gradient.to(dtype), weight.to(dtype)


def parameters(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    """Random parameters with random gradients."""
    made = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape).to(dtype)
    return made


def network() -> torch.nn.Module:
    """A small convolutional network with biases, batch norm and a one-element parameter."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4)
            self.head = torch.nn.Linear(4 * 36, 3)
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            return self.head(self.norm(self.conv(images)).relu().flatten(1)) * self.scale

    return Network()


def loss_of(model: torch.nn.Module, step: int) -> Tensor:
    """The loss on a batch that depends on nothing but the step."""
    generator = torch.Generator().manual_seed(step)
    images, labels = torch.randn(6, 1, 8, 8, generator=generator), torch.randint(0, 3, (6,), generator=generator)
    return torch.nn.functional.cross_entropy(model(images), labels)
