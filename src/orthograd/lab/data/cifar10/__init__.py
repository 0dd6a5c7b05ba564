"""CIFAR-10: fetched once, verified, then mapped into memory.

Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from .description import CIFAR10, Cifar10, Part
from .files import dataset, fetch, load, verify

__all__ = ["CIFAR10", "Cifar10", "Part", "dataset", "fetch", "load", "verify"]
