"""Data sets: training and test images with labels; and scikit-learn's digits."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy
import torch
from torch import Tensor

from .storage import digest

DARK = 64
"""Images in uint8 whose pixels are all below this were probably not scaled to 255."""
TEST_DIGITS = 797


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) in float32 from 0 to 1 or in uint8, and labels (n,) from 0.

    Networks get (images − mean) / deviation, if these are given, one per channel, for images from 0 to 1.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            _check(getattr(self, f"{part}_images"), getattr(self, f"{part}_labels"), self.classes, part)
        for name, given in (("mean", self.mean), ("deviation", self.deviation)):
            if len(given) not in (0, self.shape[0]) or len(self.mean) != len(self.deviation):
                raise ValueError(f"expected mean and deviation of {self.shape[0]} channels, got {name} {given}")
        if not (all(map(math.isfinite, self.mean)) and all(0 < value < math.inf for value in self.deviation)):
            raise ValueError(f"expected a finite mean and a deviation above 0, got {self.mean} and {self.deviation}")
        if self.test_images.shape[1:] != self.shape:
            shape = tuple(self.test_images.shape[1:])
            raise ValueError(f"expected test images of {self.shape} as in training, got {shape}")

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of images, labels, classes, mean and deviation."""
        parts = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        hashes = [(str(part.dtype), list(part.shape), digest(part.detach().cpu().numpy())) for part in parts]
        whole = [hashes, self.classes, list(map(float, self.mean)), list(map(float, self.deviation))]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def normalized(self, images: Tensor) -> Tensor:
        """Images as the input of a network: in float32, standardized by mean and deviation. Works on any device."""
        values = images.float() / 255 if images.dtype == torch.uint8 else images
        if not self.mean:
            return values.clone() if values is images else values  # networks may change their input in place
        mean, deviation = (values.new_tensor(given).view(-1, 1, 1) for given in (self.mean, self.deviation))
        return (values - mean) / deviation

    def few(self, per_class: int, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Images and labels of ``per_class`` random training samples per class, and the rows of the rest."""
        generator = torch.Generator().manual_seed(seed)
        chosen = []
        for label in range(self.classes):
            members = (self.train_labels == label).nonzero()[:, 0]
            if len(members) < per_class:
                raise ValueError(
                    f"expected {per_class} training images of class {label} of {self.name}, got {len(members)}"
                )
            chosen.append(members[torch.randperm(len(members), generator=generator)[:per_class]])
        rows = torch.cat(chosen)
        is_left = torch.ones(len(self.train_labels), dtype=torch.bool)
        is_left[rows] = False
        return self.train_images[rows], self.train_labels[rows], is_left.nonzero()[:, 0]


def _check(images: Tensor, labels: Tensor, classes: int, part: str) -> None:
    if images.ndim != 4 or images.dtype not in (torch.float32, torch.uint8):
        raise ValueError(
            f"expected {part} images (n, channels, height, width) in float32 or uint8, "
            f"got {images.dtype} {tuple(images.shape)}"
        )
    if images.requires_grad or images.device.type != "cpu":
        raise ValueError(
            f"expected {part} images without gradients, on the CPU, got {images.device} and "
            f"requires_grad={images.requires_grad}: images.detach().cpu()"
        )
    if len(images):
        _check_range(images, part)
    if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(f"expected {len(images)} {part} labels of int64, got {labels.dtype} {tuple(labels.shape)}")
    if len(labels) == 0 or int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ValueError(f"expected {part} labels from 0 to {classes - 1}, got {sorted(set(labels.tolist()))}")


def _check_range(images: Tensor, part: str) -> None:
    """Raise for pixels outside the range, which shifts would clamp and to which their strength is fitted."""
    low, high = (value.item() for value in images.aminmax())
    if images.dtype == torch.uint8 and high < DARK:
        raise ValueError(
            f"expected {part} images in uint8 from 0 to 255, got none above {high}: scale them to 255, "
            "or give float32 from 0 to 1"
        )
    if images.dtype == torch.float32 and not (low >= 0 and high <= 1):
        raise ValueError(
            f"expected {part} images in float32 from 0 to 1, got {low:.9g} to {high:.9g}: divide by the largest value "
            "that a pixel can have (or give bytes as uint8); to standardize, give mean and deviation to Dataset"
        )


def digits() -> Dataset:
    """Scikit-learn's digits, 1797 images of 8 × 8: 1000 for training, 797 for testing. Needs no download.

    The split is fixed.

    Reference: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
    """
    table = torch.from_numpy(_digits_table())
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
    images = table[:, :64].view(-1, 1, 8, 8).float().div_(16)[order]
    labels = table[:, 64].long()[order]
    n = TEST_DIGITS
    return Dataset("digits", images[n:], labels[n:], images[:n], labels[:n], classes=10)


def _digits_table() -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]:
    """Table with 64 pixels from 0 to 16 and a label in each row."""
    # Importing scikit-learn takes more time and memory than training a network on its digits.
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ImportError("the digits are a file of scikit-learn: pip install '.[lab]'")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        return numpy.loadtxt(file, delimiter=",", ndmin=2)
