"""Scikit-learn's digits: 1797 images of 8 × 8, which need no download.

Reference: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
"""

from __future__ import annotations

import torch

from .dataset import Dataset

TEST = 797


def digits() -> Dataset:
    """The digits in an order that is always the same: 797 to be judged by, 1000 to learn from."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(found.images).float().div_(16)[:, None][order]
    labels = torch.from_numpy(found.target).long()[order]
    return Dataset("digits", images[TEST:], labels[TEST:], images[:TEST], labels[:TEST], classes=10)
