"""Scikit-learn's digits: 1797 images of 8 × 8, which need no download.

Reference: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy
import torch

from .dataset import Dataset

TEST = 797


def digits() -> Dataset:
    """The digits in an order that is always the same: 797 to be judged by, 1000 to learn from."""
    table = torch.from_numpy(_table())
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
    images = table[:, :64].view(-1, 1, 8, 8).float().div_(16)[order]
    labels = table[:, 64].long()[order]
    return Dataset("digits", images[TEST:], labels[TEST:], images[:TEST], labels[:TEST], classes=10)


def _table() -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]:
    """64 pixels from 0 to 16 and a label in each row."""
    # Importing scikit-learn for one of its files would take longer, and more memory, than training a network on it.
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ImportError("the digits are a file of scikit-learn: pip install '.[lab]'")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        return numpy.loadtxt(file, delimiter=",", ndmin=2)
