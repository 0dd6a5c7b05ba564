"""Who has which place on a GPU, and what happens when it is full; with places that are only pretended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import pytest
import torch

from orthograd.lab.gpu.slots import Slots
from orthograd.lab.training.config import Config
from orthograd.lab.training.task import Task

TASK = Task.of(Config())


class GPU:
    """Has room for so many slots; those that Python has let go of leave theirs."""

    def __init__(self, room):
        self.room, self.taken, self.made, self.lock = room, 0, 0, threading.Lock()

    def slot(self, config, task):
        with self.lock:
            if self.taken == self.room:
                raise RuntimeError("CUDA error: out of memory")
            self.taken += 1
            self.made += 1
        return Slot(self)


class Slot:
    def __init__(self, gpu):
        self.gpu = gpu
        self.attached = self  # a circle, as optimizers and what is attached to them make one

    def __del__(self):
        with self.gpu.lock:
            self.gpu.taken -= 1

    def current(self):
        return nullcontext()

    def begin(self, config, task):
        if config.seed == 13:
            raise ValueError("no luck")


def test_a_slot_is_used_again_by_runs_of_its_kind_alone():
    gpu = GPU(room=9)
    slots = Slots(gpu.slot)
    for config in (Config(seed=1), Config(seed=2, epochs=7), Config(seed=1, arm="orthograd")):
        with slots.lent(config, TASK):
            pass
    assert gpu.made == 2


def test_slots_that_nobody_has_make_room_for_another_arm():
    gpu = GPU(room=1)
    slots = Slots(gpu.slot)
    for arm in ("baseline", "orthograd", "baseline"):
        with slots.lent(Config(arm=arm), TASK):
            assert gpu.taken == 1
    assert gpu.made == 3


def test_runs_wait_for_room_and_none_fails():
    """More runs at once than the GPU has room for, of two arms."""
    gpu, done = GPU(room=2), []
    slots, pause = Slots(gpu.slot), threading.Event()

    def run(seed):
        with slots.lent(Config(seed=seed, arm=("baseline", "orthograd")[seed % 2]), TASK, waits=True):
            pause.wait(0.02)
            done.append(seed)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(6)))
    assert sorted(done) == list(range(6))
    assert gpu.taken <= 2


def test_the_last_slot_may_come_back_just_when_another_run_finds_no_room():
    gpu, other, refusals = GPU(room=1), ExitStack(), []

    def slot(config, task):
        try:
            return gpu.slot(config, task)
        except RuntimeError as error:
            refusals.append(error)
            if len(refusals) == 2:
                other.close()
            raise

    slots = Slots(slot)
    other.enter_context(slots.lent(Config(), TASK))
    with slots.lent(Config(arm="orthograd"), TASK, waits=True):
        assert gpu.made == 2


def test_who_holds_slots_does_not_wait_for_itself_and_who_is_alone_is_told():
    slots = Slots(GPU(room=1).slot)
    with slots.lent(Config(), TASK), pytest.raises(RuntimeError, match="out of memory"), slots.lent(Config(), TASK):
        pass
    none = Slots(GPU(room=0).slot)
    with pytest.raises(RuntimeError, match="out of memory"), none.lent(Config(), TASK, waits=True):
        pass


def test_a_run_that_fails_gives_its_room_back_and_not_its_slot():
    gpu = GPU(room=1)
    slots = Slots(gpu.slot)
    with pytest.raises(KeyError), slots.lent(Config(), TASK, waits=True):
        raise KeyError("in the run")
    with pytest.raises(ValueError, match="no luck"), slots.lent(Config(seed=13), TASK, waits=True):
        pass
    with slots.lent(Config(), TASK, waits=True):
        assert gpu.made == 3
    assert isinstance(torch.OutOfMemoryError("full"), RuntimeError)  # so that it is looked at
