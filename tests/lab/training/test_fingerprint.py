"""Fingerprints change with the data and the network, and not with rounding."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy
import pytest
import torch
from torch import nn

from orthograd.lab.data import Dataset, digits
from orthograd.lab.jobs.files import as_file
from orthograd.lab.jobs.record import difference
from orthograd.lab.networks import MODELS
from orthograd.lab.training.config import Config
from orthograd.lab.training.fingerprint import fingerprint
from orthograd.lab.training.loop import train
from orthograd.lab.training.task import Task

IMAGES = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
DATA = Dataset("few", IMAGES, torch.arange(40) % 2, IMAGES[:8], torch.arange(8) % 2, classes=2)


def network(*, width=4, dropout=0.1, momentum=0.1, activation=nn.ReLU, frozen=False, scale=1.0, last=2):
    layers = [nn.Flatten(), nn.Linear(16, width), nn.BatchNorm1d(width, momentum=momentum), nn.Dropout(dropout)]
    model = nn.Sequential(*layers, activation(), nn.Linear(width, last))
    model[1].weight.requires_grad_(not frozen)
    model[1].weight.data *= scale
    return model


def of(make=lambda shape, classes: network(), data=DATA, *, own="own"):
    """Fingerprint of a network function; another name avoids the cache."""
    globals()[own] = make
    return fingerprint(Config(model=f"{__name__}:{own}", dataset="few"), data)


CHANGES = {
    "width": {"width": 5},
    "dropout": {"dropout": 0.2},
    "batch norm's memory": {"momentum": 0.2},
    "activation": {"activation": nn.GELU},
    "a layer that does not learn": {"frozen": True},
    "initial values": {"scale": 1.001},
    "number of logits": {"last": 3},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_a_network_shows(change):
    result = difference(of(own="before"), of(lambda *_: network(**change), own=f"after_{'_'.join(change)}"))
    assert result.startswith("another network: ")


def test_rounding_does_not_show():
    """Another CPU or version of torch may round initial values and logits differently."""

    def rounded(*_):
        model = network()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 1 + 1e-7 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
        return model

    one, other = of(own="exact"), of(rounded, own="rounded")
    assert one["values"] != other["values"]
    assert difference(one, other) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"train_images": IMAGES.flip(0)},
        {"train_labels": (torch.arange(40) + 1) % 2},
        {"test_images": IMAGES[1:9]},
        {"test_labels": 1 - torch.arange(8) % 2},
        {"classes": 3},
        {"mean": (0.5,), "deviation": (0.5,)},
        {"train_images": torch.where(IMAGES[7, 0, 1, 2] == IMAGES, IMAGES[7, 0, 1, 2].nextafter(IMAGES.max()), IMAGES)},
    ],
    ids=lambda change: " ".join(change),
)
def test_every_change_of_data_shows(change):
    other = dataclasses.replace(DATA, **change)
    assert other.sha256 != DATA.sha256
    assert difference({"data": DATA.sha256, "images": [[1, 2], [1, 2]]}, of(data=other)).startswith("other data: ")


def test_the_same_data_have_the_same_hash_however_they_lie_in_memory():
    lying = IMAGES.contiguous(memory_format=torch.channels_last).transpose(2, 3).contiguous().transpose(2, 3)
    assert not lying.is_contiguous()
    assert dataclasses.replace(DATA, name="other", train_images=lying).sha256 == DATA.sha256


@pytest.mark.parametrize("model", ["cnn", "cnn_batchnorm", "mlp", "resnet18"])
def test_networks_of_ours_have_one_that_a_record_can_keep(model):
    data = digits()
    if model == "resnet18":
        images = torch.randint(256, (20, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        data = Dataset("bytes", images, torch.arange(20) % 10, images, torch.arange(20) % 10, classes=10)
    result = fingerprint(Config(model=model), data)
    assert as_file(dict(result))
    assert result["parameters"] == sum(each.numel() for each in MODELS[model](data.shape, 10).parameters())
    assert difference(result, fingerprint(Config(model=model, seed=3, method="orthograd"), data)) == ""


def test_records_of_earlier_versions_are_compared_by_what_they_have():
    result = of()
    assert difference({}, result) == ""
    assert difference({"parameters": result["parameters"]}, result) == ""
    assert difference({"parameters": 7}, result) == f"another network: 7 parameters, and {result['parameters']:,}"


def test_a_network_that_begins_with_nan_is_refused():
    with pytest.raises(ValueError, match=r"to begin with finite numbers, got infinity or NaN in 1\.weight"):
        of(lambda *_: network(scale=math.nan), own="broken")


def test_what_learns_must_be_new_in_every_network_and_constants_may_be_shared():
    norm, constant = nn.BatchNorm1d(16, affine=False), nn.Linear(16, 16).requires_grad_(False)
    assert of(lambda *_: nn.Sequential(nn.Flatten(), constant, nn.Linear(16, 2)), own="with_constant")
    with pytest.raises(ValueError, match=r"to make a new network each time, got 1\.running_mean in common"):
        of(lambda *_: nn.Sequential(nn.Flatten(), norm, nn.Linear(16, 2)), own="with_statistics")
    head = nn.Linear(16, 2)
    with pytest.raises(ValueError, match=r"to make a new network each time, got 1\.weight in common"):
        of(lambda *_: nn.Sequential(nn.Flatten(), head), own="with_head")


def test_what_a_network_draws_without_a_seed_in_every_step_is_refused():
    class Noisy(nn.Linear):
        def forward(self, images):
            return super().forward(images.flatten(1) + float(numpy.random.randn()))

    with pytest.raises(ValueError, match=r"to make the same network each time for the same seed, got .* other logits"):
        of(lambda *_: Noisy(16, 2), own="noisy")


class Keeper:
    """Keeps the last checkpoint, and ends the run after the second epoch."""

    last = None

    def save_checkpoint(self, tensors, state):
        self.last = (dict(tensors), copy.deepcopy(state))

    def load_checkpoint(self):
        return self.last


def stopped(config, task):
    keeper = Keeper()

    def stop(progress):
        if progress["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, task, keeper=keeper, report=stop)
    return keeper


def test_training_does_not_go_on_from_the_checkpoint_of_another_network_or_of_other_data():
    config = Config(model="mlp", epochs=4)
    task = Task.of(config)
    keeper = stopped(config, task)
    with pytest.raises(ValueError, match="expected a checkpoint of the same network and data, got another network"):
        train(dataclasses.replace(config, model="cnn"), task, keeper=keeper)
    dimmer = dataclasses.replace(task.dataset, train_images=task.dataset.train_images / 2)
    with pytest.raises(ValueError, match="got other data"):
        train(config, dataclasses.replace(task, dataset=dimmer), keeper=keeper)
    assert len(train(config, task, keeper=keeper).losses) == 4


def test_a_checkpoint_of_an_earlier_version_that_does_not_fit_is_refused():
    config = Config(model="mlp", epochs=4)
    task = Task.of(config)
    keeper = stopped(config, task)
    del keeper.last[1]["fingerprint"]
    with pytest.raises(ValueError, match=r"expected a checkpoint of this network, with .* got"):
        train(dataclasses.replace(config, model="cnn"), task, keeper=keeper)
    name = next(name for name in keeper.last[0] if name.endswith("bias"))
    keeper.last[0][name] = keeper.last[0][name][:1]  # copy_ would broadcast it
    with pytest.raises(ValueError, match=r"expected a checkpoint of this network, with .* got"):
        train(config, task, keeper=keeper)
