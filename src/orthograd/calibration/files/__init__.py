"""Reads predictions from files, scores (n, classes) and labels (n,), and evaluates them."""
