"""The images that a trained network is judged by: clean ones, and shifted ones at five severities."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from ..data import Dataset, cifar10c, corruption
from ..data.shifts import SEVERITIES, SHIFTS, shifted
from ..training.config import Config

Images = tuple[str, Tensor]


def judged_by(config: Config, data: Dataset) -> Iterator[Images]:
    """Names such as "clean" and "fog.3", and images on the run's device."""
    yield "clean", data.test_images.to(config.device)
    if config.shifts == "simple":
        plain = data.test_images.float() / 255 if data.test_images.dtype == torch.uint8 else data.test_images
        for name in SHIFTS:
            for severity in SEVERITIES:
                yield f"{name}.{severity}", shifted(plain, name, severity=severity).to(config.device)
    elif config.shifts == "cifar10c":
        yield from _corrupted(config.dataset, config.device, _Shared(data))


def source_of_shifts(config: Config) -> str:
    """Where shifted images come from: "official" files, files "made" before, or "made" as they are needed."""
    if config.shifts == "cifar10c" and _is_read(config.dataset):
        return cifar10c.source() or "made"
    return "none" if config.shifts == "none" else "made"


class _Shared:
    """A data set that caches like its name: runs load it anew, and its test images are always the same."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and self.data.name == other.data.name

    def __hash__(self) -> int:
        return hash(self.data.name)


@lru_cache(maxsize=1)
def _corrupted(dataset: str, device: str, shared: _Shared) -> list[Images]:
    """The 15 corruptions of CIFAR-10-C at five severities; kept, since every run needs them."""
    images = shared.data.test_images
    found = []
    for name, severity in _ways():
        if _is_read(dataset):
            made = cifar10c.load(name, severity)[0].to(device)
        else:
            made = corruption.corrupt(images.to(device), name, severity=severity)
        found.append((f"{name}.{severity}", made))
    return found


def check_shifts(config: Config, data: Dataset) -> None:
    """Refuse what a network could not be judged by, before it is trained."""
    if config.shifts == "cifar10c":
        _check_corruptions(config.dataset, _Shared(data))


@lru_cache(maxsize=1)
def _check_corruptions(dataset: str, shared: _Shared) -> None:
    if not _is_read(dataset):
        images = shared.data.test_images
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
            raise ValueError(
                "corruptions: expected images of bytes (n, 3, height, width), such as cifar10, got "
                f"{dataset} of {str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
            )
        for name in corruption.CORRUPTIONS:
            corruption.corrupt(shared.data.test_images[:1], name, severity=1)
        return
    for name, severity in _ways():
        if (found := len(cifar10c.load(name, severity)[1])) != len(shared.data.test_labels):
            expected = f"{len(shared.data.test_labels)} images under {name}, as there are test images"
            raise ValueError(f"{cifar10c.place()}: expected {expected}, got {found}")


def _ways() -> Iterator[tuple[str, int]]:
    return product(corruption.CORRUPTIONS, SEVERITIES)


def _is_read(dataset: str) -> bool:
    """Whether corrupted images lie on the disk, as they may for CIFAR-10."""
    return dataset == "cifar10" and cifar10c.source() is not None
