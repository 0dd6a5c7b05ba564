"""Predictions of any classifier from a file: scores (n, classes) and labels (n,)."""

from .reading import SUFFIXES, PredictionsFile, read_predictions

__all__ = ["SUFFIXES", "PredictionsFile", "read_predictions"]
