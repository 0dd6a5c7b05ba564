"""Addition modulo 113 as a data set: a rule that a network can fit without learning it."""

from __future__ import annotations

import torch
from torch.nn import functional

from .dataset import Dataset

MODULUS = 113
TEST_PAIRS = 40
"""Test pairs of each class; the other 73 are for training."""


def modular_addition() -> Dataset:
    """All pairs (a, b) below 113 with the label (a + b) mod 113. Needs no download, and the split is fixed.

    An image is two one-hots, 1 × 2 × 113. With 45 training pairs per class, about 40% of all, AdamW fits them and has a
    test accuracy near zero; ⊥AdamW learns to add.

    Reference: Prieto et al., "Grokking at the Edge of Numerical Stability", 2025.
    """
    pairs = torch.cartesian_prod(torch.arange(MODULUS), torch.arange(MODULUS))
    pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))]
    images, labels = functional.one_hot(pairs, MODULUS).float().unsqueeze(1), pairs.sum(1) % MODULUS
    # Every class has 113 pairs; the first 40 of each are for testing.
    earlier = functional.one_hot(labels, MODULUS).cumsum(0).gather(1, labels[:, None])[:, 0] - 1
    is_test = earlier < TEST_PAIRS
    parts = (images[~is_test], labels[~is_test], images[is_test], labels[is_test])
    return Dataset("modular_addition", *parts, classes=MODULUS)
