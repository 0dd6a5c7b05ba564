"""Predictions for the tests of this folder."""

from __future__ import annotations

import torch


def predictions(n=4000, classes=10, *, scale=3.0, noise=2.0, seed=0, dtype=torch.float64):
    """Logits of an overconfident classifier, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = (logits + noise * torch.randn(n, classes, generator=generator, dtype=torch.float64)).argmax(1)
    return logits.to(dtype), labels
