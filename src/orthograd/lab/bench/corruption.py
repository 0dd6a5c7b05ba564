"""How long a CPU takes to make CIFAR-10-C."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from ..data import corruption
from .claim import Claim

IMAGES = 10_000


def corruption_time() -> Iterator[Claim]:
    """Seconds for 15 × 5 × 10,000 images."""
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    corruption.corrupt(images[:64], "frost", severity=1)  # decodes the photographs, once in a process
    started = time.perf_counter()
    for name in corruption.CORRUPTIONS:
        for severity in corruption.SEVERITIES:
            corruption.corrupt(images, name, severity=severity)
    yield Claim("15 × 5 × 10,000 images corrupted on the CPU, s", time.perf_counter() - started, 300)
