"""A GPU as an object: its precision, its slots, and what happens when it is full.

Slots are simulated.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import pytest
import torch

from orthograd.lab.gpu.gpu import GPU
from orthograd.lab.training.config import Config
from orthograd.lab.training.task import Task

TASK = Task.of(Config())


class Card:
    """Memory for a limited number of slots; garbage-collected ones free theirs."""

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
    def __init__(self, card):
        self.card = card
        self.attached = self  # a reference cycle, as between an optimizer and its attachment

    def __del__(self):
        with self.card.lock:
            self.card.taken -= 1

    def current(self):
        return nullcontext()

    def capture(self, config, task):
        pass

    def begin(self, config, task):
        if config.seed == 13:
            raise ValueError("no luck")


def on(make_slot):
    """A GPU with simulated slots; it need not be open to lend them."""
    return GPU("float32", make_slot)


def test_a_slot_is_used_again_by_runs_of_the_same_network_and_method():
    card = Card(room=9)
    gpu = on(card.slot)
    for config in (Config(seed=1), Config(seed=2, epochs=7), Config(seed=1, method="orthograd")):
        with gpu.slot(config, TASK):
            pass
    assert card.made == 2


def test_slots_that_nobody_has_make_room_for_another_method():
    card = Card(room=1)
    gpu = on(card.slot)
    for method in ("baseline", "orthograd", "baseline"):
        with gpu.slot(Config(method=method), TASK):
            assert card.taken == 1
    assert card.made == 3


def test_runs_wait_for_room_and_none_fails():
    """More concurrent runs, of two methods, than fit the GPU."""
    card, done = Card(room=2), []
    gpu, pause = on(card.slot), threading.Event()

    def run(seed):
        with gpu.slot(Config(seed=seed, method=("baseline", "orthograd")[seed % 2]), TASK, waits=True):
            pause.wait(0.02)
            done.append(seed)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(6)))
    assert sorted(done) == list(range(6))
    assert card.taken <= 2


def test_the_last_slot_may_come_back_just_when_another_run_finds_no_room():
    card, other, refusals = Card(room=1), ExitStack(), []

    def slot(config, task):
        try:
            return card.slot(config, task)
        except RuntimeError as error:
            refusals.append(error)
            if len(refusals) == 2:
                other.close()
            raise

    gpu = on(slot)
    other.enter_context(gpu.slot(Config(), TASK))
    with gpu.slot(Config(method="orthograd"), TASK, waits=True):
        assert card.made == 2


def test_who_holds_slots_does_not_wait_for_itself_and_who_is_alone_is_told():
    gpu = on(Card(room=1).slot)
    with gpu.slot(Config(), TASK), pytest.raises(RuntimeError, match="out of memory"), gpu.slot(Config(), TASK):
        pass
    none = on(Card(room=0).slot)
    with pytest.raises(RuntimeError, match="out of memory"), none.slot(Config(), TASK, waits=True):
        pass


def test_a_run_that_fails_gives_its_room_back_and_not_its_slot():
    card = Card(room=1)
    gpu = on(card.slot)
    with pytest.raises(KeyError), gpu.slot(Config(), TASK, waits=True):
        raise KeyError("in the run")
    with pytest.raises(ValueError, match="no luck"), gpu.slot(Config(seed=13), TASK, waits=True):
        pass
    with gpu.slot(Config(), TASK, waits=True):
        assert card.made == 3
    assert isinstance(torch.OutOfMemoryError("full"), RuntimeError)  # so that it is caught


@pytest.fixture
def products_in_tf32():
    """TF32 enabled by the environment, as in some containers."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_a_gpu_sets_its_precision_whatever_was_before_and_takes_it_back(name, products_in_tf32):
    def fail():
        assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32 == (name != "float32")
        assert torch.backends.cudnn.deterministic
        raise KeyError("whatever ends it")

    for _ in range(2):
        with pytest.raises(KeyError), GPU(name):
            fail()
        assert torch.backends.cuda.matmul.allow_tf32


def test_a_run_in_another_precision_is_refused():
    config = Config(device="cuda", precision="tf32")
    with GPU("bf16", Card(room=1).slot) as gpu:
        refused = pytest.raises(ValueError, match=r"expected a run in bf16, .* got one in tf32")
        with refused, gpu.slot(config, TASK):
            pass


@pytest.mark.parametrize("other", ["float32", "tf32"])
def test_a_process_has_one_open_gpu(other):
    """PyTorch's flags, compilations and captures belong to the whole process."""
    with GPU("tf32"):
        with pytest.raises(ValueError, match=f"got a second one in {other} beside the one in tf32"), GPU(other):
            pass
        assert torch.backends.cudnn.allow_tf32  # still as set by the first
    with GPU(other):
        pass


def test_an_unknown_precision_is_named():
    with pytest.raises(ValueError, match="a precision among float32, tf32, bf16, got fp8"):
        GPU("fp8")


def test_slots_and_images_end_with_the_gpu():
    card = Card(room=2)
    with GPU("float32", card.slot) as gpu:
        with gpu.slot(Config(), TASK):
            pass
        assert card.taken == 1
        made = []
        for key in ("fog", "fog", "snow", "fog"):
            gpu.evaluation_images(key, lambda key=key: made.append(key))
        assert made == ["fog", "snow", "fog"]  # only one is kept
    assert card.taken == 0


def test_a_slot_without_a_gpu_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    config = Config(device="cuda")
    with (
        GPU("float32") as gpu,
        pytest.raises(ValueError, match="expected a GPU for device cuda, got a machine"),
        gpu.slot(config, TASK),
    ):
        pass
