"""Samples as rows of scores, read in blocks, so that no form of input needs a copy of all logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Elements per block: as many as fit the cache of a CPU, or keep a GPU busy."""


class Block(NamedTuple):
    """Scores (n, classes), labels (n,), and weights (n,) in float64 or None."""

    scores: Tensor
    labels: Tensor
    weights: Tensor | None


@dataclass(frozen=True)
class Rows:
    """Scores (…, classes) with labels (…): every position is a sample, except where ``is_kept`` is False.

    With ``pair``, scores (…) are binary; it maps a block of them (n,) to the scores of both classes (n, 2). ``numbers``
    are those of the rows as given, if these are only some.
    """

    scores: Tensor
    labels: Tensor
    weights: Tensor | None = None
    is_kept: Tensor | None = None
    pair: Callable[[Tensor], Tensor] | None = None
    numbers: Tensor | None = None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return 2 if self.pair else self.scores.shape[-1]

    @property
    def ignored(self) -> int:
        """Number of positions that are no samples."""
        return 0 if self.is_kept is None else self.is_kept.numel() - int(self.is_kept.sum())

    def blocks(self) -> Iterator[Block]:
        """Blocks of samples. Positions are reordered at most within a block: one image is read where it lies.

        >>> images = torch.arange(12.0).view(1, 3, 2, 2)
        >>> [block] = Rows(images.movedim(1, -1), torch.zeros(1, 2, 2, dtype=torch.long)).blocks()
        >>> block.scores.shape, block.scores.data_ptr() == images.data_ptr()
        (torch.Size([4, 3]), True)
        """
        most = BLOCK.get(self.scores.device.type, BLOCK["cpu"])
        positions = self.labels.numel() // len(self.labels)
        samples = max(1, most // (positions * self.classes))
        parts = (self.scores, self.labels, self.weights, self.is_kept)
        for start in range(0, len(self.labels), samples):
            some = [None if part is None else part[start : start + samples] for part in parts]
            yield from self._split(some, max(1, most // self.classes))

    def place(self, index: Sequence[int]) -> str:
        """Words that say where a sample is."""
        return place_of(index if self.numbers is None else [int(self.numbers[index[0]])])

    def whole(self) -> Block:
        """All samples in one block."""
        (block,) = self._split([self.scores, self.labels, self.weights, self.is_kept], max(1, self.labels.numel()))
        return block

    def _split(self, parts: list[Tensor | None], rows: int) -> Iterator[Block]:
        scores, *others = parts
        assert scores is not None
        flat = scores.reshape(-1) if self.pair else scores.reshape(-1, self.classes)
        columns = [None if part is None else part.reshape(-1) for part in others]
        for start in range(0, len(flat), rows):
            labels, weights, is_kept = (None if part is None else part[start : start + rows] for part in columns)
            yield self._block(flat[start : start + rows], labels, weights, is_kept)

    def _block(self, scores: Tensor, labels: Tensor | None, weights: Tensor | None, is_kept: Tensor | None) -> Block:
        assert labels is not None
        if is_kept is not None and not bool(is_kept.all()):
            scores, labels = scores[is_kept], labels[is_kept]
            weights = None if weights is None else weights[is_kept]
        return Block(self.pair(scores) if self.pair else scores, labels, weights)


def place_of(index: Sequence[int]) -> str:
    """Words that say where a sample is.

    >>> place_of([3]), place_of([0, 3, 5])
    ('in row 3', 'at (0, 3, 5)')
    """
    return f"in row {index[0]}" if len(index) == 1 else f"at {tuple(index)}"


def two_logits(logits: Tensor) -> Tensor:
    """A binary logit s as the logits [0, s] of both classes."""
    return torch.stack([torch.zeros_like(logits), logits], -1)


def two_probabilities(probabilities: Tensor) -> Tensor:
    """The probability p of class 1 as [1 − p, p]."""
    return torch.stack([1 - probabilities, probabilities], -1)
