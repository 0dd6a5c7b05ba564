"""CIFAR-10 on the disk: one .npy for images and one for labels of each part."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from ..folder import data_folder
from ..storage import mapped, store
from .arrays import Arrays
from .description import CIFAR10, SHAPE, Cifar10

Folder = str | os.PathLike[str] | None


def load(part: str, folder: Folder = None, *, data: Cifar10 = CIFAR10) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 of "train" or "test", mapped from the disk."""
    if part not in data.parts:
        raise ValueError(f"expected train or test, got {part!r}")
    found = _read(part, data_folder(folder), data)
    return torch.from_numpy(found.images), torch.from_numpy(found.labels).long()


def verify(folder: Folder = None, *, data: Cifar10 = CIFAR10) -> None:
    """Raise, naming the file, unless the disk holds CIFAR-10 to the last byte."""
    for part, description in data.parts.items():
        images, labels = paths(data_folder(folder), part)
        _read(part, data_folder(folder), data).check(description, (str(images), str(labels)))


def save(found: dict[str, Arrays], folder: Path) -> None:
    """Put both parts into the data folder, each file whole."""
    for part, arrays in found.items():
        images, labels = paths(folder, part)
        store(images, arrays.images)
        store(labels, arrays.labels)


def place(folder: Path) -> Path:
    """Where in the data folder CIFAR-10 lies."""
    return folder / "cifar10"


def paths(folder: Path, part: str) -> tuple[Path, Path]:
    """The files of a part's images and labels.

    >>> [path.name for path in paths(Path("data"), "train")]
    ['train_images.npy', 'train_labels.npy']
    """
    return place(folder) / f"{part}_images.npy", place(folder) / f"{part}_labels.npy"


def _read(part: str, folder: Path, data: Cifar10) -> Arrays:
    images, labels = paths(folder, part)
    for path in (images, labels):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; `orthograd data cifar10` brings it")
    count = data.parts[part].images
    try:
        return Arrays(mapped(images, (count, *SHAPE)), mapped(labels, (count,)))
    except ValueError as error:
        raise ValueError(f"{error}; `orthograd data cifar10` brings it anew") from error
