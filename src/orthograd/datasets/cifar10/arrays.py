"""Images and labels of one part, as every source gives them and as they lie on the disk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..storage import digest
from ..storage.arrays import Bytes
from .description import Part


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images (n, 3, 32, 32) and labels (n,), both uint8."""

    images: Bytes
    labels: Bytes

    def check(self, part: Part, names: tuple[str, str]) -> None:
        """Raise, with one of these names for images and labels, if these are not the bytes of the part."""
        found = (digest(self.images.transpose(0, 2, 3, 1)), digest(self.labels))
        for name, actual, expected in zip(names, found, (part.images_sha256, part.labels_sha256), strict=True):
            if actual != expected:
                raise ValueError(f"{name}: expected the SHA-256 {expected} of CIFAR-10, got {actual}")


def joined(batches: list[Arrays]) -> Arrays:
    """Batches one behind the other."""
    images = np.concatenate([batch.images for batch in batches])
    return Arrays(images, np.concatenate([batch.labels for batch in batches]))
