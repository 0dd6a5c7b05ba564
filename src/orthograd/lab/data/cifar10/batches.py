"""The official binary form: for each image a byte that is its label, then its red, green and blue planes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .description import CLASSES, SHAPE, Arrays, Cifar10, Part, joined

FOLDER = "cifar-10-batches-bin"
PICKLED_FOLDER = "cifar-10-batches-py"

_RECORD = 1 + math.prod(SHAPE)


def sizes(data: Cifar10) -> dict[str, int]:
    """The files, and how many bytes each has.

    >>> from .description import CIFAR10
    >>> sizes(CIFAR10)["test_batch.bin"]
    30730000
    """
    return {f"{batch}.bin": part.images_in_batch * _RECORD for part in data.parts.values() for batch in part.batches}


def decoded(files: Mapping[str, bytes], data: Cifar10) -> dict[str, Arrays]:
    """Both parts from the bytes of their files."""
    return {
        name: joined([_batch(f"{batch}.bin", files[f"{batch}.bin"], part) for batch in part.batches])
        for name, part in data.parts.items()
    }


def _batch(name: str, content: bytes, part: Part) -> Arrays:
    expected = part.images_in_batch * _RECORD
    if len(content) != expected:
        raise ValueError(f"{name}: expected {expected} bytes, got {len(content)}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    if records[:, 0].max() >= CLASSES:
        raise ValueError(f"{name}: expected labels from 0 to {CLASSES - 1}, got {records[:, 0].max()}")
    return Arrays(records[:, 1:].reshape(-1, *SHAPE), records[:, 0])
