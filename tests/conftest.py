"""What several tests need."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the kernels run on the CPU then, slowly; read when triton is imported

# What a script starts in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("hypothesis"):  # machines with a GPU may have no more than torch and pytest
    from hypothesis import settings

    # The same examples every time, so that a red run speaks of the change and not of the dice, and no clock.
    # Throwing them anew, now and then: pytest --hypothesis-profile=dice --hypothesis-seed=7
    settings.register_profile("same", derandomize=True, deadline=None)
    settings.register_profile("dice", deadline=None)
    settings.load_profile("same")

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """The same random numbers each time; and as many threads as before, of which `orthograd bench` takes two."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


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
