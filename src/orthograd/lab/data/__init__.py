"""Data sets by name, and images as they may come in practice."""

from . import cifar10, cifar10c
from .dataset import Dataset
from .digits import digits
from .shifts import SEVERITIES, SHIFTS, shifted

DATASETS = {"digits": digits, "cifar10": cifar10.dataset}

__all__ = ["DATASETS", "SEVERITIES", "SHIFTS", "Dataset", "cifar10", "cifar10c", "digits", "shifted"]
