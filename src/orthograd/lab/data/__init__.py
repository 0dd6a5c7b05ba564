"""Data sets by name."""

from . import cifar10
from .dataset import Dataset, digits

DATASETS = {"digits": digits, "cifar10": cifar10.dataset}

__all__ = ["DATASETS", "Dataset", "digits"]
