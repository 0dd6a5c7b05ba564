"""The fastest number of concurrent runs on a GPU, by measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import repeat

import torch

from ..training.batches import Draws
from ..training.config import Config
from ..training.methods import method_named
from ..training.task import Task
from .slot import Slot, is_full

Lend = Callable[[Config, Task], AbstractContextManager[Slot]]
"""Lends a slot: `GPU.slot`."""
SIZES = (1, 2, 3, 4, 6, 8, 10, 12)
"""Numbers of concurrent runs to try."""
WORTH_IT = 1.015
"""Smallest speedup for which more concurrent runs are used."""
GOING_ON = 1.02
"""Smallest speedup from one size to the next for which a larger one is tried."""
MOST, AGREED = 4, 1.01
"""Most trials of a size, and how close the two fastest must be to stop earlier."""


class Trials:
    """Times an epoch of more and more concurrent runs, until that is no longer faster."""

    def __init__(self, lend: Lend, config: Config, task: Task, most: int = SIZES[-1]) -> None:
        self._lend, self._config, self._task, self._most = lend, config, task, most
        self.seconds_a_run: dict[int, float] = {}
        """Seconds per epoch divided by the number of concurrent runs, for each number."""
        with ExitStack() as lent:
            self._try(lent)

    @property
    def fastest(self) -> int:
        """The smallest number of concurrent runs within `WORTH_IT` of the best."""
        best = min(self.seconds_a_run.values())
        return next(size for size, seconds in self.seconds_a_run.items() if seconds <= WORTH_IT * best)

    def _try(self, lent: ExitStack) -> None:
        slots: list[Slot] = []
        for size in (size for size in SIZES if size <= self._most):
            try:
                while len(slots) < size:
                    slots.append(lent.enter_context(self._lend(self._config, self._task)))
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
        """Seconds for a concurrent epoch of all slots: the best of several, since the first ones warm up."""
        config, task = self._config, self._task
        draws = Draws.of(config, method_named(config.method), len(task.labels), torch.Generator().manual_seed(0))
        times: list[float] = []
        while len(times) < 2 or (len(times) < MOST and times[1] > AGREED * times[0]):
            times = sorted([*times, epoch_of_all(slots, draws)])
        return times[0]


def epoch_of_all(slots: list[Slot], draws: Draws) -> float:
    """Seconds for an epoch of every slot, concurrently."""
    torch.cuda.synchronize()
    with ThreadPoolExecutor(len(slots)) as threads:
        started = time.perf_counter()
        list(threads.map(_epoch, slots, repeat(draws)))  # an error in one of them is raised here
        return time.perf_counter() - started


def _epoch(slot: Slot, draws: Draws) -> None:
    with torch.cuda.stream(slot.stream):
        slot.epoch(draws)
