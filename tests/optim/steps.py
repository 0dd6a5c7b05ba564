"""Fused optimizers and those they must equal, for the tests of this folder."""

from __future__ import annotations

import pytest
import torch

from orthograd import attach
from orthograd.optim import SGD, AdamW

pytest.importorskip("orthograd.engine.step_kernels", exc_type=ImportError)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(5, 3, 3, 3), (17,), (40, 14), (1,), (700,)]
MOMENTUM = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
ADAMW = {"lr": 0.01, "weight_decay": 0.1}
SETTINGS = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.1}),
    (SGD, MOMENTUM),
    (SGD, {**MOMENTUM, "nesterov": True}),
    (AdamW, ADAMW),
    (AdamW, {"lr": 0.01, "betas": (0.0, 0.99), "eps": 1e-3, "weight_decay": 0.0}),
]
BOTH = [(SGD, MOMENTUM), (AdamW, ADAMW)]


def parameters(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in SHAPES]
    made[0] = made[0].contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(value) for value in made]


def fill(tensors, seed):
    """Random gradients at new addresses, in the memory order of their tensors."""
    generator = torch.Generator().manual_seed(100 + seed)
    for tensor in tensors:
        noise = torch.randn(tensor.shape, generator=generator)
        tensor.grad = torch.empty_like(tensor).copy_(noise)


def fused(kind, tensors, **settings):
    """An optimizer that must take fused steps: on a CPU they are interpreted."""
    optimizer = kind(tensors, engine="triton", **settings)
    optimizer.plain_step = lambda: pytest.fail("the step was not fused")
    return optimizer


def usual(kind, tensors, *, options=None, **settings):
    """Torch's optimizer with ⊥Grad by `attach`."""
    optimizer = kind.base(tensors, **settings)
    attach(optimizer, **(options or {}))
    return optimizer


def take(optimizers, tensors, steps):
    for seed in steps:
        for each, own in zip(optimizers, tensors, strict=True):
            fill(own, seed)
            each.step()


def assert_alike(result, wanted, tolerance=2e-6):
    for ours, theirs in zip(result, wanted, strict=True):
        torch.testing.assert_close(ours.detach().float(), theirs.detach().float(), rtol=tolerance, atol=tolerance)
