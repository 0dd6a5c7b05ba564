"""What a GPU does in a step of training: the time of its kernels by what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from ..gpu.precision import precision
from ..gpu.slots import SLOTS
from ..training.arms import arm_named
from ..training.config import Config
from ..training.draws import Draws
from ..training.task import Task
from .claim import Claim

KINDS = {
    "optimizer": ("step_kernel", "fusedoptimizer", "fused_sgd", "multi_tensor"),
    "⊥Grad": ("measuring_kernel", "moments_kernel", "merge_kernel", "apply_kernel"),
    "work space of convolutions": ("init_device_workspace", "memset"),
    "batch norm, activations, casts": (
        "triton_",
        "statistics_kernel",
        "normalise_kernel",
        "sums_kernel",
        "input_gradient_kernel",
        "merging_kernel",
        "copy_kernel",
    ),
    "convolutions": (
        "conv",
        "wide_kernel",
        "transposing_kernel",
        "spreading_kernel",
        "weight_gradient_kernel",
        "adding_kernel",
        "stem_kernel",
        "xmma",
        "cutlass",
        "gemm",
        "cudnn",
    ),
}
"""Parts of the names of kernels, the first that fits deciding."""


def step_by_kind(config: Config, task: Task) -> Iterator[Claim]:
    """Microseconds of kernels in a step of one run by itself, each kind for itself."""
    with precision(config.precision), SLOTS.lent(config, task) as slot:
        generator = torch.Generator().manual_seed(0)
        draws = Draws.of(config, arm_named(config.arm), len(task.labels), generator)
        slot.epoch(draws)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            slot.epoch(draws)
    steps = -(-len(task.labels) // config.batch_size)
    spent: Counter[str] = Counter()
    for row in profile.key_averages():
        spent[_kind(row.key)] += row.self_device_time_total / steps
    for kind, microseconds in spent.most_common():
        yield Claim(f"a step of {config.model}, {config.precision}, {config.arm}: {kind}, µs", microseconds)


def _kind(name: str) -> str:
    lower = name.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), "other")
