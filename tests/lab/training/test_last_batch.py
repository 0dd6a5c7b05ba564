"""The last batch of an epoch: kept, dropped, put first, weighted, or normalized by running statistics."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from orthograd.lab.jobs.files import config_hash
from orthograd.lab.training.batches import Draws
from orthograd.lab.training.config import CHOICES, Config
from orthograd.lab.training.loop import train
from orthograd.lab.training.methods import METHODS
from orthograd.lab.training.steps import EagerSteps, one_hot
from orthograd.lab.training.task import Task, initial_model

KEEP = Config(epochs=2, labels_per_class=5, batch_size=16, model="cnn_batchnorm")  # 50 images: 3 batches and 2 images


def with_choice(choice: str, **settings: object) -> Config:
    return dataclasses.replace(KEEP, last_batch=choice, **settings)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_kept_last_batch_goes_unnamed():
    """So that configs have the hashes that they had before there was a choice."""
    assert "last_batch" not in KEEP.as_dict()
    dropped = with_choice("drop")
    assert dropped.as_dict()["last_batch"] == "drop"
    assert Config.from_dict(dropped.as_dict()) == dropped
    assert config_hash(KEEP.as_dict()) != config_hash(dropped.as_dict())
    with pytest.raises(ValueError, match=r"last_batch among keep, drop, .*, got skip"):
        Config.from_dict({"last_batch": "skip"})


@pytest.mark.parametrize("method", ["baseline", "mixup"])
@pytest.mark.parametrize("choice", CHOICES["last_batch"])
def test_draws_are_those_of_a_kept_last_batch(choice, method):
    """Order, crops and flips are paired between choices; what is dropped is the end of the order."""
    config = with_choice(choice, augmentation="crop_flip", method=method)
    one, other = (torch.Generator().manual_seed(5) for _ in range(2))
    for _ in range(2):
        kept, draws = Draws.of(KEEP, METHODS[method], 50, one), Draws.of(config, METHODS[method], 50, other)
        count = 48 if choice == "drop" else 50
        assert sum(config.batches_of(50)) == len(draws.rows) == count
        assert torch.equal(draws.rows, kept.rows[:count])
        assert draws.partners is None or len(draws.partners) == len(draws.shares) == count
        assert len(draws.offsets) == len(draws.is_flipped) == count
        one.set_state(other.get_state())  # crops were drawn for one of them


def test_mixup_stays_in_its_batch_wherever_the_small_one_is():
    config = with_choice("first", method="mixup")
    draws = Draws.of(config, METHODS["mixup"], 50, torch.Generator().manual_seed(1))
    partners = torch.arange(50) + draws.partners
    starts = [0, 2, 18, 34, 50]
    for start, stop in itertools.pairwise(starts):
        assert sorted(partners[start:stop].tolist()) == list(range(start, stop))


@pytest.mark.parametrize("choice", CHOICES["last_batch"])
def test_an_epoch_is_the_loop_that_one_would_write(choice):
    config = with_choice(choice)
    task, size = Task.of(config), config.batch_size
    steps, model = EagerSteps(config, task), initial_model(config, task.dataset).train()
    optimizer = torch.optim.SGD(model.parameters(), config.learning_rate, config.momentum, weight_decay=5e-4)
    draws = Draws.of(config, METHODS["baseline"], 50, torch.Generator().manual_seed(3))
    mean = steps.epoch(draws)
    images, targets = task.dataset.normalized(task.images), one_hot(task)
    parts = [*draws.rows.split([2, 16, 16, 16])] if choice == "first" else [*draws.rows.split(size)]
    total = 0.0
    for part in parts:
        is_small = len(part) < size
        norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
        for norm in norms:
            norm.train(not (is_small and choice == "running_statistics"))
        value = cross_entropy(model(images[part]), targets[part])
        optimizer.zero_grad()
        (value * (len(part) / size if choice == "weighted" else 1.0)).backward()
        optimizer.step()
        total += float(value.detach()) * len(part)
    assert [len(part) for part in parts] == config.batches_of(50)
    torch.testing.assert_close(weights(steps.model), weights(model), rtol=1e-6, atol=1e-7)
    assert mean == pytest.approx(total / sum(map(len, parts)), rel=1e-6)
    assert all(layer.training for layer in steps.model.modules())


def test_every_choice_trains_another_network():
    task = Task.of(KEEP)
    networks = [weights(train(with_choice(choice), task).model) for choice in CHOICES["last_batch"]]
    assert not any(torch.equal(one, other) for i, one in enumerate(networks) for other in networks[:i])


def test_where_batches_are_whole_every_choice_is_the_same():
    task = Task.of(KEEP)
    networks = [weights(train(with_choice(choice, batch_size=25), task).model) for choice in CHOICES["last_batch"]]
    assert all(torch.equal(networks[0], each) for each in networks)


def test_too_few_images_for_a_whole_batch_are_refused():
    with pytest.raises(ValueError, match=r"at least 64 training images, one whole batch, .* got 50"):
        with_choice("drop", batch_size=64).batches_of(50)
