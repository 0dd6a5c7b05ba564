"""A run: the same config gives the same bits, runs of a seed are paired, and a run resumes where it stopped."""

from __future__ import annotations

import copy
import dataclasses
import math
from unittest import mock

import pytest
import torch
from torch import nn

from orthograd import calibration
from orthograd.lab.data import DATASETS, Dataset
from orthograd.lab.runs.prediction import predicted
from orthograd.lab.training.batches import Draws, prepared
from orthograd.lab.training.config import Config
from orthograd.lab.training.loop import train
from orthograd.lab.training.methods import METHODS, method_named
from orthograd.lab.training.steps import loss, optimizer_of
from orthograd.lab.training.task import Task, initial_model

QUICK = Config(epochs=4)


def own_data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.rand(60, 2, 6, 6, generator=generator), torch.arange(60) % 3
    return Dataset("own", images, labels, images, labels, classes=3)


def own_model(shape: tuple[int, int, int], classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0] * shape[1] * shape[2], classes))


NOT_A_FUNCTION = 3


class Memory:
    """Keeps checkpoints, and stops training like a crash after some epochs."""

    def __init__(self, crash_at=None):
        self.last, self.crash_at, self.saved = None, crash_at, 0

    def save_checkpoint(self, tensors, state):
        self.last = ({name: value.clone() for name, value in tensors.items()}, copy.deepcopy(state))
        self.saved += 1
        if self.saved == self.crash_at:
            raise KeyboardInterrupt

    def load_checkpoint(self):
        return self.last


def weights(trained):
    return torch.cat([value.flatten().double() for value in trained.model.state_dict().values()])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_same_config_gives_the_same_bits_whatever_the_state_of_the_world(method, optimizer):
    if METHODS[method].limited and optimizer == "adamw":
        pytest.skip("limits the gradient by SGD's weight decay")
    model = "cnn_batchnorm"  # has every layer type that a method may act on
    config = Config(epochs=2, method=method, optimizer=optimizer, model=model, learning_rate=0.01)
    task = Task.of(config)
    first = train(config, task)
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    second = train(config, Task.of(config))
    assert torch.equal(weights(first), weights(second))
    assert first.losses == second.losses
    assert torch.equal(torch.random.get_rng_state(), before)  # and restores the global random state


@pytest.mark.parametrize("method", ["baseline", "orthograd", "mixup"])
@pytest.mark.parametrize(("optimizer", "model"), [("sgd", "cnn_batchnorm"), ("adamw", "cnn")])
@pytest.mark.parametrize("crash_at", [1, 3])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(method, optimizer, model, crash_at):
    config = dataclasses.replace(QUICK, method=method, optimizer=optimizer, model=model, learning_rate=0.01)
    task = Task.of(config)
    memory = Memory(crash_at)
    with pytest.raises(KeyboardInterrupt):
        train(config, task, keeper=memory)
    epochs = []
    resumed = train(config, task, keeper=memory, report=lambda event: epochs.append(event["epoch"]))
    whole = train(config, task)
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.losses == whole.losses
    assert epochs == list(range(crash_at + 1, 5))  # nothing twice
    assert [len(run.stretches) for run in (resumed, whole)] == [2, 1]
    instants = [instant for stretch in resumed.stretches for instant in stretch]
    assert instants == sorted(instants)  # one after the other, and all of it before now


def test_a_run_that_is_told_to_stop_keeps_what_it_has_though_no_checkpoint_was_due(monkeypatch):
    monkeypatch.setattr("orthograd.lab.training.steps.EagerSteps.seconds_between_checkpoints", 1e9)

    def stop(event):
        if event["epoch"] == 2:
            raise KeyboardInterrupt

    task, memory, epochs = Task.of(QUICK), Memory(), []
    with pytest.raises(KeyboardInterrupt):
        train(QUICK, task, keeper=memory, report=stop)
    resumed = train(QUICK, task, keeper=memory, report=lambda event: epochs.append(event["epoch"]))
    assert epochs == [3, 4]
    assert torch.equal(weights(resumed), weights(train(QUICK, task)))
    assert memory.saved == 1


def test_methods_of_a_seed_share_images_initial_weights_and_order():
    baseline, orthograd = QUICK, dataclasses.replace(QUICK, method="orthograd")
    left, right = Task.of(baseline), Task.of(orthograd)
    assert torch.equal(left.images, right.images)
    models = [initial_model(config, left.dataset).state_dict() for config in (baseline, orthograd)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    other = dataclasses.replace(QUICK, seed=1)
    assert not torch.equal(left.images, Task.of(other).images)
    # With a rate of almost nothing methods differ in nothing: then batches came in the same order too.
    still = [dataclasses.replace(config, learning_rate=1e-30) for config in (baseline, orthograd)]
    assert train(still[0], left).losses == train(still[1], right).losses


def test_orthograd_steps_are_orthogonal_and_the_baseline_s_are_not():
    for method, is_orthogonal in (("baseline", False), ("orthograd", True)):
        config = dataclasses.replace(QUICK, method=method)
        model = own_model((1, 8, 8), 10)
        optimizer = optimizer_of(config, model)
        before = model[1].weight.detach().clone()
        torch.nn.functional.cross_entropy(model(torch.rand(8, 1, 8, 8)), torch.arange(8)).backward()
        optimizer.step()
        gradient = model[1].weight.grad
        cosine = float((gradient * before).sum() / (gradient.norm() * before.norm()))
        assert (abs(cosine) < 1e-6) is is_orthogonal


def test_losses_by_hand():
    logits = torch.tensor([[2.0, 0.0]])
    target = torch.tensor([[1.0, 0.0]])
    p = float(logits.softmax(1)[0, 0])
    log_p = logits.log_softmax(1)[0]
    assert float(loss(METHODS["baseline"], logits, target)) == pytest.approx(-float(log_p[0]))
    smoothed = -(0.975 * float(log_p[0]) + 0.025 * float(log_p[1]))
    assert float(loss(METHODS["label_smoothing"], logits, target)) == pytest.approx(smoothed)
    assert float(loss(METHODS["focal"], logits, target)) == pytest.approx(-((1 - p) ** 3) * float(log_p[0]))


def test_mixing_mixes_images_as_it_mixes_targets_and_within_a_batch():
    data = own_data()
    config = dataclasses.replace(QUICK, method="mixup", batch_size=8)
    draws = Draws.of(config, METHODS["mixup"], 60, torch.Generator().manual_seed(3))
    images = torch.arange(60.0).view(60, 1, 1, 1)
    found, wanted = prepared(data, images, torch.eye(60), draws)
    torch.testing.assert_close(wanted @ torch.arange(60.0), found.flatten())
    torch.testing.assert_close(wanted.sum(1), torch.ones(60))
    batch = {int(row): place // 8 for place, row in enumerate(draws.rows)}
    for place, row in enumerate(wanted):
        assert {batch[int(image)] for image in row.nonzero()[:, 0]} == {place // 8}
    parts = [prepared(data, images, torch.eye(60), draws.part(i, i + 8))[0] for i in range(0, 60, 8)]
    assert torch.equal(torch.cat(parts), found)


def test_every_method_of_a_seed_has_the_same_order_crops_and_flips_in_every_epoch():
    config = dataclasses.replace(QUICK, augmentation="crop_flip")
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    for _ in range(3):
        plain, mixed = Draws.of(config, METHODS["baseline"], 50, one), Draws.of(config, METHODS["mixup"], 50, other)
        for name in ("rows", "offsets", "is_flipped"):
            assert torch.equal(getattr(plain, name), getattr(mixed, name))


def test_predictions_cover_clean_shifted_and_held_out_images():
    task = Task.of(QUICK)
    found = predicted(train(QUICK, task).model, task, QUICK)
    assert len([name for name in found if name.startswith("logits.")]) == 1 + 5 * 5 + 1
    assert found["logits.clean"].shape == (797, 10)
    assert found["logits.held_out"].shape == (900, 10)
    calibration.evaluate(found["logits.blur.3"], found["labels"])
    everything = dataclasses.replace(QUICK, labels_per_class=0, epochs=1)
    task = Task.of(everything)
    assert "logits.held_out" not in predicted(train(everything, task).model, task, everything)


def test_own_models_and_data_enter_by_import_path():
    config = dataclasses.replace(QUICK, dataset=f"{__name__}:own_data", model=f"{__name__}:own_model")
    task = Task.of(config)
    assert predicted(train(config, task).model, task, config)["logits.clean"].shape == (60, 3)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("model", "resnet", "a model among cnn, cnn_batchnorm, mlp, .*, or an import path like"),
        ("model", "no.such:thing", "a model at the import path no.such:thing, but No module"),
        ("model", "no.such.py:thing", "name the module without .py, no.such:thing"),
        ("model", f"{__name__}:missing", "has no attribute 'missing'"),
        ("model", f"{__name__}:NOT_A_FUNCTION", "expected a function at the import path .* got int"),
        ("model", f"{__name__}:test_losses_by_hand", "takes 0 positional arguments|torch.nn.Module"),
        ("dataset", f"{__name__}:Memory", "to make an orthograd.lab.data.Dataset, got Memory"),
        ("method", "dropout", "a method among baseline, orthograd"),
    ],
)
def test_what_does_not_exist_is_named(setting, value, words):
    config = dataclasses.replace(QUICK, **{setting: value})
    with pytest.raises((ValueError, TypeError), match=words):
        train(config, Task.of(config))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"epochs": 0}, "epochs of at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate above 0, got 0.0"),
        ({"seed": -1}, "seed not below 0, got -1"),
        ({"epoch": 3}, "got epoch"),
        ({"epochs": "3"}, "epochs of int, got '3'"),
        ({"epochs": True}, "epochs of int, got True"),
        ({"optimizer": "lion"}, "optimizer among sgd, adamw, got lion"),
        ({"augmentation": "flip"}, "augmentation among none, crop_flip, got flip"),
        ({"shifts": "fog"}, "shifts among none, simple, cifar10c, got fog"),
        ({"device": "tpu"}, "device among cpu, cuda, got tpu"),
        ({"precision": "bf16"}, "precision float32 on the CPU, got bf16"),
        ({"device": "cuda", "precision": "fp8"}, "precision among float32, tf32, bf16, got fp8"),
    ],
)
def test_configs_that_cannot_be_are_named(data, words):
    with pytest.raises(ValueError, match=words):
        Config.from_dict(data)


def test_configs_survive_plain_data():
    assert Config.from_dict(QUICK.as_dict()) == QUICK
    assert Config.from_dict({"learning_rate": 1}).learning_rate == 1.0
    assert method_named(QUICK.method).title == "baseline"


def with_dropout(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(math.prod(shape), classes))


def test_what_a_network_draws_itself_depends_on_the_seed_alone():
    config = dataclasses.replace(QUICK, model="tests.lab.training.test_training:with_dropout")
    task, memory = Task.of(config), Memory(crash_at=2)
    whole = train(config, task)
    torch.rand(7)  # the world goes on
    with pytest.raises(KeyboardInterrupt):
        train(config, task, keeper=memory)
    assert train(config, task, keeper=memory).losses == whole.losses
    assert train(dataclasses.replace(config, seed=1), task).losses != whole.losses


def test_held_out_images_have_every_class_though_the_data_are_sorted():
    labels = torch.arange(12_000) // 4000
    images = torch.rand(12_000, 1, 2, 2)
    data = Dataset("sorted", images, labels, images[:3], labels[:3], 3)
    with mock.patch.dict(DATASETS, {"sorted": lambda: data}):
        task = Task.of(dataclasses.replace(QUICK, dataset="sorted"))
    assert task.held_out_labels.bincount().min() > 1600
    assert len(task.held_out_labels) == 5000
