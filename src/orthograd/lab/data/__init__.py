"""Data sets by name."""

from . import cifar10
from .dataset import Dataset, digits
from .modular import modular_addition

DATASETS = {"digits": digits, "cifar10": cifar10.dataset, "modular_addition": modular_addition}

__all__ = ["DATASETS", "Dataset", "digits", "modular_addition"]
