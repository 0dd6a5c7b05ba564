"""Predictions of any classifier from a file: scores (n, classes) and labels (n,)."""
