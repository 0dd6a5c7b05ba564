"""How many runs side by side use a GPU best, found by trying."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat

import torch

from ..training.arms import arm_named
from ..training.config import Config
from ..training.draws import Draws
from ..training.task import Task
from .slots import SLOTS, Slot, is_full

SIZES = (1, 2, 3, 4, 6, 8, 10, 12)
WORTH_IT = 1.015
"""Gain in speed for which a larger pack is taken."""
GOING_ON = 1.02
"""Gain from one size to the next for which a still larger one is tried."""
MOST, AGREED = 4, 1.01
"""Times that a pack is tried at most, and how close the two fastest are before."""
_FOUND: dict[tuple[Config, int], int] = {}


def fastest_pack(config: Config, most: int = SIZES[-1]) -> int:
    """How many runs like this one, of so many at most, are best done at once; what was set up is used again.

    Found out once a process for each network: what arms and seeds change does not matter here.
    """
    most = min(most, SIZES[-1])
    if most == 1:
        return 1
    kind = config.network, most
    if kind not in _FOUND:
        _FOUND[kind] = Packs(config, Task.of(config), most).fastest
    return _FOUND[kind]


class Packs:
    """Epochs of ever more runs at once, tried until that gets no faster."""

    def __init__(self, config: Config, task: Task, most: int = SIZES[-1]) -> None:
        self._config, self._task, self._most = config, task, most
        self.seconds_a_run: dict[int, float] = {}
        """Seconds of an epoch over the number of runs at once."""
        with ExitStack() as lent:
            self._try(lent)

    @property
    def fastest(self) -> int:
        """The smallest pack that is as good as any, up to what is worth it."""
        best = min(self.seconds_a_run.values())
        return next(size for size, seconds in self.seconds_a_run.items() if seconds <= WORTH_IT * best)

    def _try(self, lent: ExitStack) -> None:
        slots: list[Slot] = []
        for size in (size for size in SIZES if size <= self._most):
            try:
                while len(slots) < size:
                    slots.append(lent.enter_context(SLOTS.lent(self._config, self._task)))
                found = self._seconds(slots) / size
            except RuntimeError as error:
                if not self.seconds_a_run or not is_full(error):
                    raise
                return
            best = min(self.seconds_a_run.values(), default=float("inf"))
            self.seconds_a_run[size] = found
            if best < GOING_ON * found:
                return

    def _seconds(self, slots: list[Slot]) -> float:
        """For an epoch of each slot, all at once; the best of some, since the first ones warm up, until two agree."""
        config, task = self._config, self._task
        draws = Draws.of(config, arm_named(config.arm), len(task.labels), torch.Generator().manual_seed(0))
        found: list[float] = []
        while len(found) < 2 or (len(found) < MOST and found[1] > AGREED * found[0]):
            found = sorted([*found, epoch_of_all(slots, draws)])
        return found[0]


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
