"""Microseconds of fused steps on a GPU next to torch's, by the size of thread blocks and the number of chunks.

`orthograd bench --only fused` measures the sizes that are set; this script tries others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from orthograd.engine import launch, step_plan
from orthograd.lab.bench.step import LARGE, NETWORKS, PAPER, RATE, bases, fused_bases, llama_1b, parameters
from orthograd.lab.gpu.slot import fused_sgd
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
    return fused_sgd(weights, copies, Options() if projects else None, lr=RATE, momentum=0.9, weight_decay=5e-4).step


def steps_of(network: str, base: str) -> dict[str, Callable[[], Step]]:
    """Functions that make a step: of torch's fused optimizer, the same with `attach`, and of the fused class."""
    shapes = llama_1b() if network == LARGE else NETWORKS[network]()
    made = parameters(shapes, CUDA, torch.bfloat16 if network == LARGE else torch.float32)

    def attached() -> Step:
        optimizer = bases(CUDA)[base](made)
        attach(optimizer)
        return optimizer.step

    return {
        "torch": lambda: bases(CUDA)[base](made).step,
        "attach": attached,
        "fused": lambda: fused_bases()[base](made).step,
    }


def microseconds(make: Callable[[], Step]) -> float:
    """Microseconds of a step replayed from a CUDA graph. Its optimizer is gone afterwards, with its state."""
    gc.collect()  # an optimizer and its hooks refer to each other
    torch.cuda.empty_cache()
    step = make()
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
    lab = [microseconds(partial(lab_step, projects=projects)) for projects in (False, True)]
    print(f"the lab's ResNet-18: SGD {lab[0]:.1f}, with ⊥Grad {lab[1]:.1f} microseconds", flush=True)
    for network, base in product([*NETWORKS, LARGE], [PAPER, "AdamW"]):
        steps = steps_of(network, base)
        usual, attached = microseconds(steps["torch"]), microseconds(steps["attach"])
        print(f"{network}, {base}: torch {usual:.1f}, attach {attached / usual:.2f} of it, fused:", flush=True)
        for block, chunks in product([256, 512, 1024], [512, 2048]):
            step_plan.BLOCK, launch.MOST_CHUNKS = block, chunks
            ratio = microseconds(steps["fused"]) / usual
            print(f"    blocks of {block}, at most {chunks} chunks: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
