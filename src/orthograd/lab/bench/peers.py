"""What others do, to be measured in the same run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch.optim import Optimizer

Peer = Callable[[Optimizer], Callable[[], Any]]
"""Makes the step of an optimizer a ⊥Grad step in its own way."""


def per_tensor_loop(optimizer: Optimizer) -> Callable[[], Any]:
    """The published style: a loop over tensors, a handful of operations and temporaries for each."""

    @torch.no_grad()
    def step() -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            w, g = parameter.reshape(-1), parameter.grad.reshape(-1)
            orthogonal = g - torch.dot(w, g) / (torch.dot(w, w) + 1e-30) * w
            scale = g.norm() / (orthogonal.norm() + 1e-30)
            parameter.grad.copy_((orthogonal * scale).view_as(parameter.grad))
        optimizer.step()

    return step


def pytorch_optimizer(optimizer: Optimizer) -> Callable[[], Any]:
    """OrthoGrad of the package of that name."""
    from pytorch_optimizer import OrthoGrad

    step: Callable[[], Any] = OrthoGrad(optimizer).step
    return step


def available() -> dict[str, Peer]:
    """The peers that are installed here."""
    peers: dict[str, Peer] = {"per-tensor loop": per_tensor_loop}
    if find_spec("pytorch_optimizer") is not None:
        peers[f"pytorch_optimizer {version('pytorch_optimizer')}"] = pytorch_optimizer
    return peers
