"""The cosine schedule: as in PyTorch, also in resumed runs, and absent from configs without it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from orthograd.lab.jobs.files import config_hash
from orthograd.lab.training.config import Config
from orthograd.lab.training.loop import train
from orthograd.lab.training.steps import optimizer_of, set_rate
from orthograd.lab.training.task import Task
from tests.lab.training.test_training import Memory, weights

FALLING = Config(epochs=4, model="cnn_batchnorm", method="orthograd", learning_rate=0.05, schedule="cosine")


def test_rates_are_those_of_torch():
    optimizer = SGD([torch.zeros(1, requires_grad=True)], 0.05)
    schedule = CosineAnnealingLR(optimizer, 7)
    config = dataclasses.replace(FALLING, epochs=7)
    for epoch in range(7):
        assert config.rate_in(epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimizer.step(), schedule.step()
    constant = dataclasses.replace(config, schedule="constant")
    assert {constant.rate_in(epoch) for epoch in range(7)} == {0.05}


def test_epochs_are_taken_at_their_rates(monkeypatch):
    seen = []
    monkeypatch.setattr("orthograd.lab.training.loop.set_rate", lambda optimizer, rate: seen.append(rate))
    fixed = train(FALLING, Task.of(FALLING))
    assert seen == [FALLING.rate_in(epoch) for epoch in range(4)]
    monkeypatch.undo()
    falling = train(FALLING, Task.of(FALLING))
    assert falling.losses[0] == fixed.losses[0]  # in the first epoch, whose rate is the same
    assert falling.losses[1:] != fixed.losses[1:]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_that_was_stopped_goes_on_at_its_rate(optimizer):
    config = dataclasses.replace(FALLING, optimizer=optimizer)
    memory, task = Memory(crash_at=2), Task.of(config)
    with pytest.raises(KeyboardInterrupt):
        train(config, task, keeper=memory)
    resumed, whole = train(config, task, keeper=memory), train(config, task)
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.losses == whole.losses


def test_a_constant_rate_goes_without_saying():
    """Configs without a schedule keep the hashes of older records."""
    assert "schedule" not in Config().as_dict()
    assert FALLING.as_dict()["schedule"] == "cosine"
    assert config_hash(Config().as_dict()) != config_hash(dataclasses.replace(Config(), schedule="cosine").as_dict())
    assert Config.from_dict(FALLING.as_dict()) == FALLING
    with pytest.raises(ValueError, match="schedule among constant, cosine, got step"):
        Config.from_dict({"schedule": "step"})


def test_a_rate_that_is_read_stays_in_its_place():
    place = torch.tensor(0.5)
    optimizer = SGD([torch.ones(1, requires_grad=True)], place)
    set_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is place
    assert float(place) == 0.25
    usual = optimizer_of(FALLING, torch.nn.Linear(2, 2))
    set_rate(usual, 0.125)
    assert usual.param_groups[0]["lr"] == 0.125
