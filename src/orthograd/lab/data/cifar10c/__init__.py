"""CIFAR-10-C, the test images of CIFAR-10 corrupted in many ways: as it was published, or made here.

Reference: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
2019.
"""

from .finding import SEVERITIES, place, source
from .making import make
from .reading import load, verify

__all__ = ["SEVERITIES", "load", "make", "place", "source", "verify"]
