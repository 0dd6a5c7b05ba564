"""Training speed of the paper's networks on a GPU, next to a plain loop in the same run, and time by kernel."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import SGD
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Source

from ..data import Dataset
from ..data.cifar10 import DEVIATION, MEAN
from ..gpu.concurrency import Trials, epoch_of_all
from ..gpu.gpu import GPU
from ..gpu.slot import Slot
from ..training.batches import Draws, cropped
from ..training.config import RECIPES, Config
from ..training.methods import method_named
from ..training.task import Task, initial_model
from .claim import CONVOLUTIONS, EPOCH, EPOCH_IMAGES, KERNELS, OVERHEAD, Claim, Key, elapsed, interleaved, ratios
from .convolutions import convolutions_alone
from .step import per_tensor_loop

METHODS = "baseline", "orthograd"
SETS, ROUNDS = 6, 7
"""Sets of concurrent runs to compare, and rounds of each. Several sets are needed, since each keeps its luck, such as
memory addresses. If sets differ only by luck, the true median lies between the ends of six in 31 of 32 cases."""
TARGET = {
    ("resnet18", "tf32"): EPOCH_IMAGES / 30_000,
    ("resnet18", "bf16"): EPOCH_IMAGES / 60_000,
    ("wide_resnet28_10", "bf16"): 0.45,
}
RECIPE = dataclasses.replace(RECIPES["cifar10"], device="cuda", precision="tf32")
KERNEL_GROUPS = {
    "optimizer": ("sgd_kernel", "adamw_kernel", "fusedoptimizer", "fused_sgd", "multi_tensor"),
    "⊥Grad": ("measuring_kernel", "moments_kernel", "merge_kernel", "apply_kernel"),
    "work space of convolutions": ("init_device_workspace", "memset"),
    "batch norm, activations, casts": (
        "triton_",
        "statistics_kernel",
        "normalize_kernel",
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
"""Substrings of kernel names; the first group that matches counts."""


def training_speed() -> Iterator[Claim]:
    """Seconds per epoch of a run: concurrent, with ⊥Grad, and by a plain loop; and time by kernel."""
    task = noise()
    for (model, name), target in TARGET.items():
        config = dataclasses.replace(RECIPE, model=model, precision=name)
        with GPU(name) as gpu:
            trials = Trials(gpu.slot, config, task).seconds_a_run
            size = min(trials, key=trials.__getitem__)
            sets = sorted((_seconds_by_method(gpu, config, task, size, turn) for turn in range(SETS)), key=_overhead)
            seconds = sets[SETS // 2]  # the upper median: ⊥Grad costs more in it
            alone, by_cudnn = (convolutions_alone(config, task, size=size, only_cudnn=each) for each in (False, True))
        for concurrent, each in trials.items():
            yield Claim(epoch_key(config, "baseline", concurrent), each)
        for method in METHODS:
            is_compared = name == "tf32"
            plain = (
                {"plain loop": _plain_epoch(dataclasses.replace(config, method=method), task)} if is_compared else {}
            )
            yield Claim(epoch_key(config, method), seconds[method], target, plain)
        yield Claim(overhead_key(config), _overhead(seconds), 1.03, ends=(_overhead(sets[0]), _overhead(sets[-1])))
        key = Key(CONVOLUTIONS, model=model, precision=name, unit="s a run")
        yield Claim(key, alone, others={"cuDNN": by_cudnn})
        yield from step_by_kernel(dataclasses.replace(config, method="orthograd"), task)


def epoch_key(config: Config, method: str, concurrent: int = 0) -> Key:
    """Key of the seconds per epoch, with this many concurrent runs or, by default, the fastest number."""
    return Key(
        EPOCH,
        model=config.model,
        precision=config.precision,
        method=method,
        concurrent=concurrent,
        unit="s a run",
    )


def overhead_key(config: Config) -> Key:
    """Key of the cost of ⊥Grad per epoch, measured in several sets of concurrent runs."""
    return Key(OVERHEAD, model=config.model, precision=config.precision, setting=f"{SETS} sets")


def _overhead(seconds: dict[str, float]) -> float:
    return float(ratios(seconds, "baseline")["orthograd"])


def _seconds_by_method(gpu: GPU, config: Config, task: Task, size: int, turn: int) -> dict[str, float]:
    """Seconds per epoch of a run, in new concurrent runs of SGD and of ⊥Grad."""
    gpu.drop_slots()
    with ExitStack() as lent:
        runs = {method: concurrent_slots(gpu, config, method, task, size, lent) for method in turned(METHODS, turn)}
        return seconds_in_turns(runs, task)


def turned(names: Sequence[str], turn: int) -> list[str]:
    """Names in a rotated order: another one is first each turn, which may be an advantage."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def concurrent_slots(gpu: GPU, config: Config, method: str, task: Task, size: int, lent: ExitStack) -> list[Slot]:
    """Slots for ``size`` concurrent runs, until ``lent`` is closed."""
    return [lent.enter_context(gpu.slot(dataclasses.replace(config, method=method), task)) for _ in range(size)]


def seconds_in_turns(slots: Mapping[str, list[Slot]], task: Task) -> dict[str, float]:
    """Seconds per epoch of a run for each name; the sets of concurrent runs take turns."""
    draws = Draws.of(RECIPE, method_named(RECIPE.method), len(task.labels), torch.Generator().manual_seed(0))
    contenders = {name: partial(epoch_of_all, own, draws) for name, own in slots.items()}
    seconds = interleaved(contenders, rounds=ROUNDS, settle=torch.cuda.synchronize)
    return {name: each / len(slots[name]) for name, each in seconds.items()}


def step_by_kernel(config: Config, task: Task) -> Iterator[Claim]:
    """Microseconds per step of one run, for each group of kernels."""
    with GPU(config.precision) as gpu, gpu.slot(config, task) as slot:
        generator = torch.Generator().manual_seed(0)
        draws = Draws.of(config, method_named(config.method), len(task.labels), generator)
        slot.epoch(draws)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            slot.epoch(draws)
    steps = -(-len(task.labels) // config.batch_size)
    spent: Counter[str] = Counter()
    for row in profile.key_averages():
        spent[_group(row.key)] += row.self_device_time_total / steps
    for group, microseconds in spent.most_common():
        key = Key(
            KERNELS,
            model=config.model,
            precision=config.precision,
            method=config.method,
            part=group,
            unit="µs",
        )
        yield Claim(key, microseconds)


def _group(name: str) -> str:
    lower = name.lower()
    return next((group for group, parts in KERNEL_GROUPS.items() if any(part in lower for part in parts)), "other")


def noise(*, test: int = 10) -> Task:
    """A task with images of noise in the format of CIFAR-10: no download is needed."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (EPOCH_IMAGES + test, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(EPOCH_IMAGES + test) % 10
    data = Dataset(
        "noise",
        images[:EPOCH_IMAGES],
        labels[:EPOCH_IMAGES],
        images[EPOCH_IMAGES:],
        labels[EPOCH_IMAGES:],
        10,
        MEAN,
        DEVIATION,
    )
    return Task(data, images[:EPOCH_IMAGES], labels[:EPOCH_IMAGES], images[:0], labels[:0])


class _OneByOne(Source[tuple[Tensor, Tensor]]):
    """The usual data set: a worker crops, flips and normalizes one image at a time."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __len__(self) -> int:
        return len(self._task.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        offsets, flip = torch.randint(9, (1, 2)), torch.rand(1) < 0.5
        image = cropped(self._task.images[index : index + 1], offsets, flip)[0]
        return self._task.dataset.normalized(image), self._task.labels[index]


def _plain_epoch(config: Config, task: Task) -> float:
    """Seconds per epoch with a DataLoader, eager steps and, for ⊥Grad, a loop over the tensors."""
    model = initial_model(config, task.dataset).cuda()
    optimizer = SGD(model.parameters(), config.learning_rate, config.momentum, weight_decay=config.weight_decay)
    step: Callable[[], object] = per_tensor_loop(optimizer) if config.method == "orthograd" else optimizer.step
    workers = min(8, os.cpu_count() or 1)
    loader = DataLoader(
        _OneByOne(task), config.batch_size, shuffle=True, num_workers=workers, pin_memory=True, persistent_workers=True
    )

    def epoch() -> None:
        for images, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True)).backward()
            step()

    epoch()
    return elapsed(epoch, settle=torch.cuda.synchronize)
