"""How fast networks of the paper train on a GPU, beside a plain loop in the same run; and what judging them takes."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import SGD
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Source

from ..data import Dataset, corruption
from ..data.cifar10 import DEVIATION, MEAN
from ..gpu.concurrency import Trials, epoch_of_all
from ..gpu.gpu import GPU
from ..gpu.slot import Slot
from ..runs.prediction import logits
from ..training.arms import arm_named
from ..training.batches import Draws, cropped
from ..training.config import RECIPES, Config
from ..training.task import Task, initial_model
from .claim import Claim, interleaved, ratios
from .convolutions import convolutions_alone
from .kernels import step_by_kind
from .peers import per_tensor_loop

ARMS = "baseline", "orthograd"
EPOCH = 5000  # images: a tenth of CIFAR-10
SETS, ROUNDS = 6, 7
"""Sets of concurrent runs that are compared, since what is luck in one, such as where its memory lies, stays as long as
it does; and turns that each has. If luck alone tells sets apart, the true median is between the ends of six in 31 of 32
cases."""
REACH = {("resnet18", "tf32"): EPOCH / 30_000, ("resnet18", "bf16"): EPOCH / 60_000, ("wide_resnet28_10", "bf16"): 0.45}
RECIPE = dataclasses.replace(RECIPES["cifar10"], device="cuda", precision="tf32")


def training_speed() -> Iterator[Claim]:
    """Seconds for an epoch of a run: concurrent, what ⊥Grad adds where that is fastest, and plain; and by kernels."""
    task = noise()
    for (model, name), reach in REACH.items():
        config = dataclasses.replace(RECIPE, model=model, precision=name)
        with GPU(name) as gpu:
            trials = Trials(gpu, config, task).seconds_a_run
            size = min(trials, key=trials.__getitem__)
            sets = sorted((_seconds_by_arm(gpu, config, task, size, turn) for turn in range(SETS)), key=_overhead)
            seconds = sets[SETS // 2]  # of the two in the middle, the one in which ⊥Grad costs more
            alone, by_cudnn = (convolutions_alone(config, task, size=size, only_cudnn=each) for each in (False, True))
        others = {f"{size} at once": value for size, value in trials.items()}
        for arm in ARMS:
            if name == "tf32":
                others["plain loop"] = _plain_epoch(dataclasses.replace(config, arm=arm), task)
            yield Claim(f"an epoch of {model}, {name}, {arm}, s a run", seconds[arm], reach, others)
            others = {}
        ends = {f"lowest of {SETS}": _overhead(sets[0]), f"highest of {SETS}": _overhead(sets[-1])}
        yield Claim(f"⊥Grad's epoch over SGD's, {model}, {name}", _overhead(seconds), 1.03, ends)
        yield Claim(f"convolutions alone in an epoch of {model}, {name}, s a run", alone, others={"cuDNN": by_cudnn})
        yield from step_by_kind(dataclasses.replace(config, arm="orthograd"), task)


def _overhead(seconds: dict[str, float]) -> float:
    return float(ratios(seconds, "baseline")["orthograd"])


def _seconds_by_arm(gpu: GPU, config: Config, task: Task, size: int, turn: int) -> dict[str, float]:
    """For an epoch of a run, among new concurrent ones of SGD and among those of ⊥Grad."""
    gpu.drop_slots()
    with ExitStack() as lent:
        runs = {arm: concurrent_slots(gpu, config, arm, task, size, lent) for arm in turned(ARMS, turn)}
        return seconds_in_turns(runs, task)


def turned(names: Sequence[str], turn: int) -> list[str]:
    """Another one first each turn: being set up or measured before the others may be worth something."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def concurrent_slots(gpu: GPU, config: Config, arm: str, task: Task, size: int, lent: ExitStack) -> list[Slot]:
    """So many runs, ready to train side by side, until what was lent is given back."""
    return [lent.enter_context(gpu.slot(dataclasses.replace(config, arm=arm), task)) for _ in range(size)]


def seconds_in_turns(slots: Mapping[str, list[Slot]], task: Task) -> dict[str, float]:
    """For an epoch of a run by each name, whose concurrent runs take turns with those of the others."""
    draws = Draws.of(RECIPE, arm_named(RECIPE.arm), len(task.labels), torch.Generator().manual_seed(0))
    contenders = {name: partial(epoch_of_all, own, draws) for name, own in slots.items()}
    seconds = interleaved(contenders, rounds=ROUNDS, settle=torch.cuda.synchronize)
    return {name: value / len(slots[name]) for name, value in seconds.items()}


def judging_speed() -> Iterator[Claim]:
    """Seconds to corrupt 10,000 images in 15 × 5 ways, and for a network to answer for all of them."""
    data = noise(test=10_000).dataset
    images = data.test_images.cuda()

    def corrupted() -> list[Tensor]:
        return [
            corruption.corrupt(images, name, severity=severity)
            for name in corruption.CORRUPTIONS
            for severity in corruption.SEVERITIES
        ]

    sets = corrupted()
    yield Claim("15 × 5 × 10,000 images corrupted, s", _seconds(corrupted), 30)
    for name in ("bf16", "tf32"):
        config = dataclasses.replace(RECIPE, precision=name)
        model = initial_model(config, data).cuda().eval()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        @torch.no_grad()
        def answers(config: Config = config, model: torch.nn.Module = model) -> list[Tensor]:
            return [logits(model, data, part, config, is_compiled=True) for part in sets]

        with GPU(name):
            answers()
            yield Claim(f"ResNet-18 judges them, {name}, s", _seconds(answers), 5)


def noise(*, test: int = 10) -> Task:
    """Images of noise in the form of CIFAR-10: what they show takes no time."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (EPOCH + test, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(EPOCH + test) % 10
    data = Dataset("noise", images[:EPOCH], labels[:EPOCH], images[EPOCH:], labels[EPOCH:], 10, MEAN, DEVIATION)
    return Task(data, images[:EPOCH], labels[:EPOCH], images[:0], labels[:0])


class _OneByOne(Source[tuple[Tensor, Tensor]]):
    """The usual way: a worker crops, flips and normalises one image at a time."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __len__(self) -> int:
        return len(self._task.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        offsets, flip = torch.randint(9, (1, 2)), torch.rand(1) < 0.5
        image = cropped(self._task.images[index : index + 1], offsets, flip)[0]
        return self._task.dataset.normalised(image), self._task.labels[index]


def _plain_epoch(config: Config, task: Task) -> float:
    """Seconds for an epoch with a DataLoader, eager steps, and for ⊥Grad a loop over the tensors."""
    model = initial_model(config, task.dataset).cuda()
    optimizer = SGD(model.parameters(), config.learning_rate, config.momentum, weight_decay=config.weight_decay)
    step: Callable[[], object] = per_tensor_loop(optimizer) if config.arm == "orthograd" else optimizer.step
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
    return _seconds(epoch)


def _seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started
