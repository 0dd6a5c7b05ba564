"""What a data set is: images and labels to learn from, and others to be judged by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) in float32 from 0 to 1, and labels (n,) from 0."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            _check(getattr(self, f"{part}_images"), getattr(self, f"{part}_labels"), self.classes, part)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def few(self, per_class: int, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Training images and labels of a random few of each class, and the positions of the rest."""
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
    if images.ndim != 4 or images.dtype != torch.float32:
        raise ValueError(
            f"expected {part} images (n, channels, height, width) in float32, got {images.dtype} {tuple(images.shape)}"
        )
    if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(f"expected {len(images)} {part} labels of int64, got {labels.dtype} {tuple(labels.shape)}")
    if len(labels) == 0 or int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ValueError(f"expected {part} labels from 0 to {classes - 1}, got {sorted(set(labels.tolist()))}")
