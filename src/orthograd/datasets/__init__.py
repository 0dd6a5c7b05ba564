"""Data sets by name, and images as they may come in practice."""

from .dataset import Dataset
from .digits import digits
from .shifts import SEVERITIES, SHIFTS, shifted

DATASETS = {"digits": digits}

__all__ = ["DATASETS", "SEVERITIES", "SHIFTS", "Dataset", "digits", "shifted"]
