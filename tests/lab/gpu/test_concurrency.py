"""The number of concurrent runs chosen from measured times, on a simulated GPU."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from orthograd.lab.gpu import concurrency, gpu
from orthograd.lab.gpu.concurrency import SIZES, Trials
from orthograd.lab.gpu.gpu import GPU
from orthograd.lab.training.config import Config
from orthograd.lab.training.task import Task


class Lender:
    """A simulated GPU that lends a limited number of slots."""

    def __init__(self, room):
        self.room, self.lending = room, 0

    @contextmanager
    def slot(self, config, task):
        if self.lending == self.room:
            raise torch.OutOfMemoryError("no room")
        self.lending += 1
        yield object()
        self.lending -= 1


def trials(monkeypatch, seconds, room=100, most=8):
    """Trials of epochs that take these seconds for 1, 2, 3, 4, 6 and 8 concurrent runs."""
    lender, times = Lender(room), dict(zip(SIZES, seconds, strict=False))
    monkeypatch.setattr(concurrency, "epoch_of_all", lambda slots, draws: times[len(slots)])
    made = Trials(lender.slot, Config(), Task.of(Config()), most)
    assert lender.lending == 0
    return made


@pytest.mark.parametrize(
    ("seconds", "tried", "fastest"),
    [
        ([1.0, 2.1], 2, 1),  # no gain at all
        ([1.0, 1.2, 1.79], 3, 2),  # 0.6 and 0.597 per run: more runs do not help
        ([1.0, 1.5, 2.0, 2.8], 4, 3),  # 1, 0.75, 0.67, 0.7 per run: stops at the first that is slower
        ([1.0, 1.4, 2.0, 2.6, 3.8, 5.0], 6, 6),  # the last gain, 0.633 to 0.625 per run, is not worth two more runs
        ([1.0, 1.2, 1.4, 1.6, 2.0, 2.4], 6, 8),  # always faster
    ],
)
def test_more_runs_are_tried_while_they_gain_and_the_fewest_good_ones_are_taken(monkeypatch, seconds, tried, fastest):
    made = trials(monkeypatch, seconds)
    assert list(made.seconds_a_run) == list(SIZES[:tried])
    assert made.fastest == fastest


def test_a_full_gpu_ends_the_search(monkeypatch):
    made = trials(monkeypatch, [1.0, 1.4, 1.5, 1.6], room=3)
    assert list(made.seconds_a_run) == [1, 2, 3]
    assert made.fastest == 3
    with pytest.raises(torch.OutOfMemoryError):
        trials(monkeypatch, [1.0], room=0)


def test_a_gpu_measures_each_network_once(monkeypatch):
    measured = []
    monkeypatch.setattr(gpu, "Trials", lambda _, config, *__: measured.append(config) or SimpleNamespace(fastest=3))
    first, one = Config(method="orthograd", seed=5), GPU("float32")
    assert one.fastest_concurrency(first) == one.fastest_concurrency(Config(method="mixup", epochs=7)) == 3
    assert one.fastest_concurrency(first, 40) == one.fastest_concurrency(Config(model="mlp")) == 3
    assert measured == [first, Config(model="mlp")]
    assert one.fastest_concurrency(Config(model="cnn_batchnorm"), 1) == 1  # a single run needs no trials
    assert len(measured) == 2
    GPU("float32").fastest_concurrency(first)  # another GPU measures again
    assert len(measured) == 3


def test_no_more_runs_are_tried_than_there_are(monkeypatch):
    assert list(trials(monkeypatch, [1.0, 1.2, 1.4, 1.6], most=3).seconds_a_run) == [1, 2, 3]


def test_an_error_in_one_of_many_epochs_is_no_gain_in_speed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)

    def fail(draws):
        raise RuntimeError("CUDA error: out of memory")

    slots = [SimpleNamespace(stream=None, epoch=epoch) for epoch in (lambda draws: 0.0, fail)]
    assert concurrency.epoch_of_all(slots[:1], None) > 0
    with pytest.raises(RuntimeError, match="out of memory"):
        concurrency.epoch_of_all(slots, None)
