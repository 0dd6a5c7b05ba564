"""Time to make CIFAR-10-C, and time for a network to predict it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from ..data import corruption
from ..data.shifts import SEVERITIES
from ..gpu.gpu import GPU
from ..runs.prediction import logits
from ..training.config import Config
from ..training.task import initial_model
from .claim import CORRUPTION, EVALUATION, Claim, Key, elapsed
from .training import RECIPE, noise

IMAGES = 10_000
SETTING = "15 × 5 × 10,000 images"
CORRUPTION_TARGET, EVALUATION_TARGET = {"cpu": 300, "cuda": 30}, 5


def corruption_time(device: torch.device) -> Iterator[Claim]:
    """Seconds to make all corruptions of the test images."""
    images = noise(test=IMAGES).dataset.test_images.to(device)
    is_gpu = device.type == "cuda"
    if is_gpu:
        corrupted(images)  # compiles and fills caches
    else:
        corruption.corrupt(images[:64], "frost", severity=1)  # decodes the photographs, once per process
    settle = torch.cuda.synchronize if is_gpu else lambda: None
    key = Key(CORRUPTION, setting=SETTING, device="GPU" if is_gpu else "CPU", unit="s")
    yield Claim(key, elapsed(lambda: corrupted(images), settle=settle), CORRUPTION_TARGET[device.type])


def evaluation_time() -> Iterator[Claim]:
    """Seconds for ResNet-18 on a GPU to predict all corrupted images."""
    device = torch.device("cuda")
    data = noise(test=IMAGES).dataset
    sets = corrupted(data.test_images.to(device))
    for name in ("bf16", "tf32"):
        config = dataclasses.replace(RECIPE, precision=name)
        model = initial_model(config, data).to(device).eval()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        @torch.no_grad()
        def predictions(config: Config = config, model: torch.nn.Module = model) -> list[Tensor]:
            return [logits(model, data, part, config, is_compiled=True) for part in sets]

        key = Key(EVALUATION, model=config.model, precision=name, setting=SETTING, device="GPU", unit="s")
        with GPU(name):
            predictions()
            yield Claim(key, elapsed(predictions, settle=torch.cuda.synchronize), EVALUATION_TARGET)


def corrupted(images: Tensor) -> list[Tensor]:
    """The images under all 15 corruptions at 5 severities."""
    return [
        corruption.corrupt(images, name, severity=severity)
        for name in corruption.CORRUPTIONS
        for severity in SEVERITIES
    ]
