"""How many runs side by side use a GPU best, found by trying."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import torch

from .arms import arm_named
from .config import Config
from .draws import Draws
from .graphs import SLOTS, Slot
from .task import Task

PACKS = (1, 2, 3, 4, 6, 8)
WORTH_IT = 1.03
"""Gain in speed for which a larger pack is taken."""


def fastest_pack(config: Config) -> int:
    """Train one epoch of ever more runs at once until that gets no faster; what was set up for it is used again."""
    task, best = Task.of(config), (0, 0.0)
    with ExitStack() as lent:
        slots: list[Slot] = []
        for pack in PACKS:
            try:
                slots += [lent.enter_context(SLOTS.lent(config, task)) for _ in range(pack - len(slots))]
                rate = pack / _seconds(slots, config, task)
            except torch.OutOfMemoryError:
                break
            if best[0] and rate < WORTH_IT * best[1]:
                break
            best = pack, rate
    if not best[0]:
        raise torch.OutOfMemoryError(f"expected room for one {config.model} on the GPU, got none")
    return best[0]


def _seconds(slots: list[Slot], config: Config, task: Task) -> float:
    """For an epoch of each slot, all at once; the second time, when everything is warm."""
    draws = Draws.of(config, arm_named(config.arm), len(task.labels), torch.Generator().manual_seed(0))
    for _ in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        threads = [threading.Thread(target=_epoch, args=(slot, draws)) for slot in slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    return seconds


def _epoch(slot: Slot, draws: Draws) -> None:
    with torch.cuda.stream(slot.stream):
        slot.epoch(draws)
