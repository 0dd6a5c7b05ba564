"""Microseconds of a fused SGD step on a GPU, with and without ⊥Grad, next to torch's, by size of its thread blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median

import torch
from torch.optim import SGD

from orthograd import attach
from orthograd.lab.gpu import step_plan
from orthograd.lab.gpu.fused_sgd import FusedSGD
from orthograd.lab.networks import resnet18
from orthograd.options import Options

ROUNDS, STEPS = 5, 20


def model() -> torch.nn.Module:
    """ResNet-18 in the memory format of training, with random gradients."""
    torch.manual_seed(0)
    made = resnet18((3, 32, 32), 10).cuda().to(memory_format=torch.channels_last)
    for parameter in made.parameters():
        parameter.grad = torch.randn_like(parameter)
    return made


def fused(*, projects: bool) -> Callable[[], object]:
    """A step of `FusedSGD`; convolutions have copies in bfloat16, which have the gradients."""
    parameters = list(model().parameters())
    copies = {each: each.detach().bfloat16().requires_grad_() for each in parameters if each.ndim == 4}
    for each, copy in copies.items():
        assert each.grad is not None
        copy.grad = each.grad.bfloat16()
    return FusedSGD(parameters, 0.01, 0.9, 5e-4, options=Options() if projects else None, copies=copies).step


def usual(*, projects: bool) -> Callable[[], object]:
    """A step of torch's fastest SGD, without copies."""
    optimizer = SGD(model().parameters(), 0.01, 0.9, weight_decay=5e-4, fused=True)
    if projects:
        attach(optimizer)
    return optimizer.step


def microseconds(step: Callable[[], object]) -> float:
    """Microseconds of a step replayed from a CUDA graph."""
    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    taken = []
    for _ in range(1 + ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(STEPS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        taken.append(1000 * start.elapsed_time(end) / STEPS)
    return median(taken[1:])


def main() -> None:
    """Print a line for each optimizer and size."""
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    print("block  chunk                            SGD   ⊥Grad")
    for name, step in (("torch, fused; with orthograd.attach", usual), ("FusedSGD", fused)):
        print(
            f"{name:36s}{microseconds(step(projects=False)):6.1f}{microseconds(step(projects=True)):8.1f}", flush=True
        )
    for block, chunk in product([512, 1024], [2048, 4096, 8192]):
        step_plan.BLOCK, step_plan.SMALLEST_CHUNK = block, chunk
        times = [microseconds(fused(projects=projects)) for projects in (False, True)]
        print(f"{block:5d}{chunk:7d}{times[0]:30.1f}{times[1]:8.1f}", flush=True)


if __name__ == "__main__":
    main()
