"""Corrupted images from the disk, whoever made them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .. import cifar10
from ..cifar10 import CIFAR10, Cifar10
from ..cifar10.files import Folder
from ..folder import data_folder
from ..storage.arrays import Bytes, digest, mapped, opened
from ..storage.progress import Progress, Report, silent
from .finding import LABELS, MADE, PUBLISHED, SEVERITIES, Place, find


def load(name: str, severity: int, folder: Folder = None, *, data: Cifar10 = CIFAR10) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 under a corruption, severity 1 to 5.

    The folder is the data folder, or a CIFAR-10-C itself.
    """
    place = _found(folder, data)
    severities = place.severities(name)
    if severity not in severities:
        raise ValueError(f"expected a severity of {name} among {severities}, got {severity!r}")
    start = severities.index(severity) * place.images
    images = torch.from_numpy(_images(place, name)[start : start + place.images])
    return images.permute(0, 3, 1, 2).contiguous(), _labels(place, folder, data)[start : start + place.images]


def verify(folder: Folder = None, *, report: Report = silent, data: Cifar10 = CIFAR10) -> list[str]:
    """The names of all corruptions here; raise, naming the file, if one is not what it must be.

    What was made here is checked by SHA-256, published files by their length, shape, type and labels.
    """
    place = _found(folder, data)
    _labels(place, folder, data)
    names = sorted(path.stem for path in place.folder.glob("*.npy") if path.name != LABELS)
    if place.manifest is not None:
        names = list(place.manifest.files)
    for done, name in enumerate(names):
        report(Progress("verifying CIFAR-10-C", done, len(names), "corruptions"))
        images = _images(place, name)
        if place.manifest is not None and (found := digest(images)) != place.manifest.files[name].sha256:
            expected = place.manifest.files[name].sha256
            raise ValueError(f"{place.path(name)}: expected the SHA-256 {expected} of its manifest, got {found}")
    return names


def _found(folder: Folder, data: Cifar10) -> Place:
    place = find(folder, data=data)
    if place is None:
        raise FileNotFoundError(
            f"{data_folder(folder)}: expected {LABELS} in it, in {PUBLISHED} or in {MADE}, got none; "
            "`orthograd data cifar10c` makes one"
        )
    return place


def _images(place: Place, name: str) -> Bytes:
    path, count = place.path(name), place.images * len(place.severities(name))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return mapped(path, (count, 32, 32, 3))


def _labels(place: Place, folder: Folder, data: Cifar10) -> Tensor:
    """The labels of all severities, once they are known to be those of the test images, if these are here."""
    path = place.folder / LABELS
    found = opened(path)
    if found.shape != (place.images * len(SEVERITIES),) or found.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: expected {place.images * len(SEVERITIES)} whole numbers, got {found.shape} of {found.dtype}"
        )
    labels = torch.from_numpy(found.astype(np.int64))
    expected = _test_labels(place, folder, data)
    if expected is not None and not torch.equal(labels, expected[: place.images].repeat(len(SEVERITIES))):
        raise ValueError(f"{path}: expected the labels of CIFAR-10's test images at each severity, got others")
    return labels


def _test_labels(place: Place, folder: Folder, data: Cifar10) -> Tensor | None:
    root = data_folder(folder)
    try:
        return cifar10.load("test", None if place.folder == root else root, data=data)[1]
    except FileNotFoundError:
        return None
