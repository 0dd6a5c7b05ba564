"""How many concurrent runs use a GPU best, measured by trying."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from typing import TYPE_CHECKING

import torch

from ..training.batches import Draws
from ..training.config import Config
from ..training.methods import method_named
from ..training.task import Task
from .slot import Slot, is_full

if TYPE_CHECKING:
    from .gpu import GPU

SIZES = (1, 2, 3, 4, 6, 8, 10, 12)
"""Numbers of concurrent runs that are tried."""
WORTH_IT = 1.015
"""Gain in speed for which more concurrent runs are taken."""
GOING_ON = 1.02
"""Gain from one size to the next for which a still larger one is tried."""
MOST, AGREED = 4, 1.01
"""Times that a size is tried at most, and how close the two fastest times must be to stop before."""


class Trials:
    """Epochs of ever more concurrent runs, tried until that gets no faster."""

    def __init__(self, gpu: GPU, config: Config, task: Task, most: int = SIZES[-1]) -> None:
        self._gpu, self._config, self._task, self._most = gpu, config, task, most
        self.seconds_a_run: dict[int, float] = {}
        """Seconds of an epoch over the number of concurrent runs."""
        with ExitStack() as lent:
            self._try(lent)

    @property
    def fastest(self) -> int:
        """The smallest size that is as good as any, up to what is worth it."""
        best = min(self.seconds_a_run.values())
        return next(size for size, seconds in self.seconds_a_run.items() if seconds <= WORTH_IT * best)

    def _try(self, lent: ExitStack) -> None:
        slots: list[Slot] = []
        for size in (size for size in SIZES if size <= self._most):
            try:
                while len(slots) < size:
                    slots.append(lent.enter_context(self._gpu.slot(self._config, self._task)))
                seconds = self._seconds(slots) / size
            except RuntimeError as error:
                if not self.seconds_a_run or not is_full(error):
                    raise
                return
            best = min(self.seconds_a_run.values(), default=float("inf"))
            self.seconds_a_run[size] = seconds
            if best < GOING_ON * seconds:
                return

    def _seconds(self, slots: list[Slot]) -> float:
        """For an epoch of each slot, all at once; the best of some, since the first ones warm up, until two agree."""
        config, task = self._config, self._task
        draws = Draws.of(config, method_named(config.method), len(task.labels), torch.Generator().manual_seed(0))
        times: list[float] = []
        while len(times) < 2 or (len(times) < MOST and times[1] > AGREED * times[0]):
            times = sorted([*times, epoch_of_all(slots, draws)])
        return times[0]


def epoch_of_all(slots: list[Slot], draws: Draws) -> float:
    """Seconds for an epoch of every slot, all at once."""
    torch.cuda.synchronize()
    with ThreadPoolExecutor(len(slots)) as threads:
        started = time.perf_counter()
        list(threads.map(_epoch, slots, repeat(draws)))  # an error in one of them is raised here
        return time.perf_counter() - started


def _epoch(slot: Slot, draws: Draws) -> None:
    with torch.cuda.stream(slot.stream):
        slot.epoch(draws)
