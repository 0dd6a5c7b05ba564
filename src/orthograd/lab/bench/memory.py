"""How much memory a projection takes beyond the gradients themselves, and how often it waits for the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from ...optimizer import attach, orthogonalize_
from .claim import Claim
from .peers import available
from .shapes import NETWORKS, parameters

MEBIBYTE = 1 << 20


def extra_memory(device: torch.device, *, networks: list[str] | None = None) -> list[Claim]:
    """Peak of what is allocated during one projection, in MiB."""
    claims = []
    for network in networks or list(NETWORKS):
        made = parameters(NETWORKS[network](), device)
        orthogonalize_(made)  # compiles what is to be compiled
        ours = peak(device, partial(orthogonalize_, made))
        others = {name: peak(device, peer(SGD(made, lr=0.0))) for name, peer in available().items()}
        claims.append(Claim(f"extra memory, {network}, MiB", ours, 1.0, others))
    return claims


def peak(device: torch.device, run: Callable[[], Any]) -> float:
    """Most MiB that were allocated at once during a run, above what was allocated before it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / MEBIBYTE
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    changes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    running, highest = 0, 0
    for change in changes:
        running += change
        highest = max(highest, running)
    return highest / MEBIBYTE


def synchronisations() -> list[Claim]:
    """How often one step makes the host wait for the GPU."""
    device = torch.device("cuda")

    def ours(optimizer: Optimizer) -> Callable[[], Any]:
        attach(optimizer)
        return optimizer.step

    counts = {}
    for name, peer in {"⊥Grad": ours, **available()}.items():
        optimizer = SGD(parameters(NETWORKS["ResNet-18"](), device), lr=1e-6, fused=True)
        counts[name] = float(_waits(peer(optimizer)))
    return [Claim("host synchronisations a step", counts.pop("⊥Grad"), 0.0, counts)]


def _waits(step: Callable[[], Any]) -> int:
    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)
