"""Microseconds of fused steps on a GPU next to torch's, by the size of thread blocks and of the windows measured first.

`orthograd bench --only fused` measures the sizes that are set; this script tries others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

import torch

from orthograd.engine import step_plan
from orthograd.lab.bench.step import LARGE, NETWORKS, PAPER, bases, fused_bases, llama_1b, parameters
from orthograd.lab.gpu.fused_sgd import FusedSGD
from orthograd.lab.networks import resnet18
from orthograd.optimizer import attach
from orthograd.options import Options

ROUNDS, STEPS = 5, 20
CUDA = torch.device("cuda")
Step = Callable[[], Any]


def lab_step(*, projects: bool) -> Step:
    """A step of the lab's ResNet-18, whose convolutions have copies in bfloat16 with the gradients."""
    model = resnet18((3, 32, 32), 10).cuda().to(memory_format=torch.channels_last)
    weights = list(model.parameters())
    copies = {each: each.detach().bfloat16().requires_grad_() for each in weights if each.ndim == 4}
    for each in weights:
        leaf = copies.get(each, each)
        leaf.grad = torch.randn_like(leaf)
    return FusedSGD(weights, 0.01, 0.9, 5e-4, options=Options() if projects else None, copies=copies).step


def steps_of(network: str, base: str) -> dict[str, Step]:
    """Steps of torch's fused optimizer, the same with `attach`, and the fused class."""
    shapes = llama_1b() if network == LARGE else NETWORKS[network]()
    dtype = torch.bfloat16 if network == LARGE else torch.float32
    usual, attached = (bases(CUDA)[base](parameters(shapes, CUDA, dtype)) for _ in range(2))
    attach(attached)
    fused = fused_bases()[base](parameters(shapes, CUDA, dtype))
    return {"torch": usual.step, "attach": attached.step, "fused": fused.step}


def microseconds(step: Step) -> float:
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
    """Print a line for each network and size."""
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    lab = [microseconds(lab_step(projects=projects)) for projects in (False, True)]
    print(f"the lab's ResNet-18: SGD {lab[0]:.1f}, with ⊥Grad {lab[1]:.1f} microseconds", flush=True)
    for network, base in product([*NETWORKS, LARGE], [PAPER, "AdamW"]):
        steps = steps_of(network, base)
        usual, attached = microseconds(steps["torch"]), microseconds(steps["attach"])
        print(f"{network}, {base}: torch {usual:.1f}, attach {attached / usual:.2f} of it, fused:", flush=True)
        for block, chunk, window in product([512, 1024], [4096, 8192], [1 << 20, 1 << 22, 1 << 24, 1 << 62]):
            step_plan.BLOCK, step_plan.SMALLEST_CHUNK, step_plan.WINDOW = block, chunk, window
            steps["fused"].__self__.state.clear()  # the next step makes a new plan
            ratio = microseconds(steps["fused"]) / usual
            sizes = f"blocks of {block}, chunks of {chunk}, windows of 2^{window.bit_length() - 1}"
            print(f"    {sizes}: {ratio:.2f}", flush=True)
        del steps
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
