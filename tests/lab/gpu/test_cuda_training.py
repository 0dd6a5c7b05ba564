"""Training on a real GPU: as on a CPU up to rounding; the same bits alone, concurrent, resumed and in a used slot."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from functools import partial

import pytest
import torch

from orthograd.lab.gpu import slot
from orthograd.lab.gpu.concurrency import SIZES
from orthograd.lab.gpu.gpu import GPU
from orthograd.lab.jobs.executors import InProcess, execute
from orthograd.lab.jobs.store import Store
from orthograd.lab.runs import prediction
from orthograd.lab.runs.concurrent import ConcurrentRuns
from orthograd.lab.runs.run import diagnosed, run, training
from orthograd.lab.training.batches import Draws, byte_table, in_one_launch, prepared
from orthograd.lab.training.config import CHOICES, Config
from orthograd.lab.training.loop import train
from orthograd.lab.training.methods import METHODS
from orthograd.lab.training.task import Task
from tests.lab.training.test_batches import in_bytes
from tests.lab.training.test_training import Memory

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ON_GPU = Config(device="cuda", epochs=4, model="cnn_batchnorm", augmentation="crop_flip")


def results(config, keeper=None, task=None, gpu=None):
    """Weights, running statistics and losses of a run, on a new GPU or an open one."""
    opened = GPU(config.precision) if gpu is None else nullcontext(gpu)
    with opened as own, training(config, task or Task.of(config), own, keeper=keeper) as trained:
        state = trained.model.state_dict()
        return torch.cat([value.flatten().double().cpu() for value in state.values()]), trained.losses


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_graphs_on_a_gpu_do_what_plain_steps_do_on_a_cpu(method, optimizer):
    if METHODS[method].limited and optimizer == "adamw":
        pytest.skip("limits the gradient by SGD's weight decay")
    config = dataclasses.replace(ON_GPU, method=method, optimizer=optimizer, learning_rate=0.005, batch_size=24)
    _, losses = results(config)
    on_cpu = dataclasses.replace(config, device="cpu")
    torch.testing.assert_close(losses, train(on_cpu, Task.of(on_cpu)).losses, rtol=2e-3, atol=0)


@pytest.mark.parametrize("method", ["baseline", "orthograd", "orthograd_row"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_graphs_see_a_rate_that_falls(method, optimizer):
    config = dataclasses.replace(ON_GPU, method=method, optimizer=optimizer, learning_rate=0.005, schedule="cosine")
    _, losses = results(config)
    on_cpu = dataclasses.replace(config, device="cpu")
    torch.testing.assert_close(losses, train(on_cpu, Task.of(on_cpu)).losses, rtol=2e-3, atol=0)
    _, constant = results(dataclasses.replace(config, schedule="constant"))
    assert losses != constant


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_graphs_without_and_with_a_later_orthograd_follow_each_other(optimizer):
    later = dataclasses.replace(
        ON_GPU, method="orthograd_after_5", optimizer=optimizer, learning_rate=0.005, batch_size=24, epochs=7
    )
    on_cpu = dataclasses.replace(later, device="cpu")
    with GPU("float32") as gpu:
        first = results(later, gpu=gpu)
        again = results(later, gpu=gpu)  # in the used slot
        plain = results(dataclasses.replace(later, method="baseline"), gpu=gpu)
    torch.testing.assert_close(first[1], train(on_cpu, Task.of(on_cpu)).losses, rtol=2e-3, atol=0)
    assert torch.equal(first[0], again[0])
    assert first[1] == again[1]
    torch.testing.assert_close(first[1][:5], plain[1][:5], rtol=2e-3, atol=0)
    assert not torch.equal(first[0], plain[0])


@pytest.mark.parametrize("method", ["orthograd", "mixup"])
@pytest.mark.parametrize("choice", CHOICES["last_batch"])
def test_graphs_treat_the_last_batch_as_a_cpu_does(choice, method):
    config = dataclasses.replace(ON_GPU, method=method, last_batch=choice, learning_rate=0.005, batch_size=24)
    _, losses = results(config)
    on_cpu = dataclasses.replace(config, device="cpu")
    torch.testing.assert_close(losses, train(on_cpu, Task.of(on_cpu)).losses, rtol=2e-3, atol=0)


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_kernels_of_our_own_normalize_a_last_batch_by_running_statistics(name):
    """The statistics stay as they were: they are those of a run that drops the batch, after one step on it."""
    config = dataclasses.replace(ON_GPU, model="resnet18", precision=name, epochs=1, labels_per_class=4, batch_size=32)
    states = []
    for choice in ("drop", "running_statistics", "keep"):
        chosen = dataclasses.replace(config, last_batch=choice)
        with GPU(name) as gpu, training(chosen, Task.of(config), gpu) as trained:
            states.append({key: value.cpu() for key, value in trained.model.state_dict().items()})
    dropped, running, kept = states
    means = [key for key in dropped if key.endswith("running_mean")]
    assert all(torch.equal(dropped[key], running[key]) for key in means)
    assert not any(torch.equal(dropped[key], kept[key]) for key in means)
    assert not torch.equal(dropped["classifier.weight"], running["classifier.weight"])


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_a_used_slot_gives_the_same_bits_as_a_new_one(name):
    config = dataclasses.replace(ON_GPU, precision=name, method="orthograd")
    with GPU(name) as gpu:
        first, losses = results(config, gpu=gpu)
        other, _ = results(dataclasses.replace(config, seed=1), gpu=gpu)
        again, same_losses = results(config, gpu=gpu)
    new, _ = results(config)
    assert torch.equal(first, again)
    assert torch.equal(first, new)
    assert losses == same_losses
    assert not torch.equal(first, other)


def test_kernels_of_our_own_learn_what_pytorch_learns_on_a_cpu():
    """One epoch at a low rate: 1e-4 in the weights makes 5e-4 in the loss; at usual rates 1e-5 makes 1%."""
    config = dataclasses.replace(ON_GPU, model="resnet18", epochs=1, method="orthograd", learning_rate=5e-4)
    _, losses = results(config)
    on_cpu = dataclasses.replace(config, device="cpu")
    torch.testing.assert_close(losses, train(on_cpu, Task.of(on_cpu)).losses, rtol=2e-3, atol=0)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 5e-4), ("adamw", 3e-4)])
def test_weights_in_bfloat16_learn_much_the_same(optimizer, rate):
    """At a low rate: at usual rates, 1e-5 in the weights makes 1% in the loss of this network."""
    config = dataclasses.replace(
        ON_GPU, model="resnet18", epochs=2, method="orthograd", optimizer=optimizer, learning_rate=rate
    )
    whole, half = (results(dataclasses.replace(config, precision=name))[1] for name in ("tf32", "bf16"))
    torch.testing.assert_close(half, whole, rtol=0.03, atol=0)


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_gradients_measured_in_the_backward_pass_give_the_same_bits_as_in_the_step(name, monkeypatch):
    config = dataclasses.replace(ON_GPU, model="resnet18", epochs=2, method="orthograd", precision=name)
    beside, losses = results(config)
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 2**63)
    in_step, same_losses = results(config)
    assert torch.equal(beside, in_step)
    assert losses == same_losses


@pytest.mark.parametrize(("model", "name"), [("cnn_batchnorm", "float32"), ("resnet18", "bf16")])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(optimizer, model, name, monkeypatch):
    monkeypatch.setattr("orthograd.lab.gpu.slot.Slot.seconds_between_checkpoints", 0.0)
    config = dataclasses.replace(
        ON_GPU, method="orthograd", optimizer=optimizer, learning_rate=0.01, model=model, precision=name
    )
    memory = Memory(crash_at=2)
    with pytest.raises(KeyboardInterrupt):
        results(config, memory)
    resumed, losses = results(config, memory)
    whole, all_losses = results(config)
    assert torch.equal(resumed, whole)
    assert losses == all_losses


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_runs_end_in_the_same_bits_alone_and_concurrent(tmp_path, name):
    configs = [
        dataclasses.replace(ON_GPU, precision=name, model="resnet18", epochs=2, method=method, seed=seed).as_dict()
        for seed in range(3)
        for method in ("baseline", "orthograd")
    ]
    with GPU(name) as gpu:
        alone = execute(configs, partial(run, gpu=gpu), Store(tmp_path / "alone"), executor=InProcess())
    together = execute(configs, run, Store(tmp_path / "together"), executor=ConcurrentRuns(4))
    for config, one, other in zip(configs, alone, together, strict=True):
        assert one["losses"] == other["losses"], config
        assert one["files"] == other["files"], config  # hashes of all logits
        assert one["weight_norm"] == other["weight_norm"]


@pytest.mark.parametrize(("model", "compiled"), [("cnn_batchnorm", 1), ("resnet18", 0)])
def test_an_evaluation_that_is_prepared_compiles_nothing_more(model, compiled, monkeypatch):
    """Networks with their own kernels compile nothing."""
    config = dataclasses.replace(ON_GPU, epochs=1, precision="bf16", shifts="cifar10c", model=model)
    task = Task.of(config)
    sets = {"clean": task.dataset.test_images.cuda(), "fog.1": task.dataset.test_images.cuda().flip(0)}
    monkeypatch.setattr(prediction, "evaluation_images", lambda config, data, gpu: iter(sets.items()))
    monkeypatch.setitem(prediction.BATCH, "cuda", 64)
    stats = torch._dynamo.utils.counters["stats"]
    with GPU("bf16") as gpu, training(config, task, gpu) as trained:  # first, since it also compiles
        before = stats["unique_graphs"]
        prediction.prepare_prediction(config, gpu)
        assert stats["unique_graphs"] == before + compiled
        predictions = prediction.predicted(trained.model, task, config, gpu)
        assert stats["unique_graphs"] == before + compiled
    clean = predictions["logits.clean"]
    assert (predictions["logits.fog.1"].flip(0) - clean).norm() < 0.05 * clean.norm()


@pytest.mark.parametrize("shape", [(200, 3, 32, 32), (50, 1, 8, 8), (37, 3, 9, 7), (64, 2, 3, 40)])
@pytest.mark.parametrize("augmentation", ["none", "crop_flip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_epochs_images_are_the_same_bits_by_one_launch(shape, augmentation, dtype):
    data = in_bytes(*shape)
    images, targets = data.train_images.cuda(), torch.eye(2, device="cuda")[data.train_labels.cuda()]
    config = dataclasses.replace(ON_GPU, augmentation=augmentation)
    for seed in range(5):
        draws = Draws.of(config, METHODS["baseline"], len(images), torch.Generator().manual_seed(seed)).to(
            images.device
        )
        found = in_one_launch(images, draws, byte_table(data, images, dtype))
        wanted, _ = prepared(data, images, targets, draws)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, wanted.contiguous(memory_format=torch.channels_last).to(dtype))


@pytest.mark.parametrize(("model", "name"), [("cnn_batchnorm", "float32"), ("resnet18", "tf32"), ("resnet18", "bf16")])
@pytest.mark.parametrize("method", ["orthograd", "mixup"])
def test_a_run_ends_in_the_same_bits_by_one_launch_an_epoch(model, name, method, monkeypatch):
    config = dataclasses.replace(ON_GPU, model=model, precision=name, method=method, epochs=2)
    data = in_bytes(150, 3, 16, 16)
    task = Task(data, data.train_images, data.train_labels, data.train_images[:0], data.train_labels[:0])
    launches, launch = [], slot.in_one_launch
    monkeypatch.setattr(slot, "in_one_launch", lambda *given: launches.append(1) or launch(*given))
    found, losses = results(config, task=task)
    assert bool(launches) == (method != "mixup")
    monkeypatch.setattr(slot, "byte_table", lambda *given: None)
    launches.clear()
    wanted, same = results(config, task=task)
    assert not launches
    assert torch.equal(found, wanted)
    assert losses == same


@pytest.mark.parametrize(("model", "name"), [("cnn_batchnorm", "float32"), ("resnet18", "bf16")])
def test_a_diagnosis_by_a_graph_says_the_same(model, name, monkeypatch):
    config = dataclasses.replace(ON_GPU, model=model, precision=name, epochs=1)
    task = Task.of(config)
    with GPU(name) as gpu, training(config, task, gpu) as trained:
        state = {key: value.clone() for key, value in trained.model.state_dict().items()}
        by_graph = diagnosed(config, task, trained.model, gpu)
        monkeypatch.setattr(gpu, "replayed", lambda forward: forward)
        assert diagnosed(config, task, trained.model, gpu) == by_graph
        assert all(torch.equal(value, state[key]) for key, value in trained.model.state_dict().items())
    kinds = {row["kind"] for row in by_graph["parameters"].values()}
    assert {"rows invariant", "part of outputs", "function"} <= kinds


def test_the_fastest_concurrency_is_one_that_was_tried():
    with GPU("tf32") as gpu:
        assert gpu.fastest_concurrency(dataclasses.replace(ON_GPU, precision="tf32")) in SIZES


def test_a_run_that_is_given_no_gpu_opens_its_own_and_ends_in_the_same_bits(tmp_path):
    config = dataclasses.replace(ON_GPU, precision="tf32", method="orthograd").as_dict()
    (own,) = execute([config], run, Store(tmp_path / "own"), executor=InProcess())
    with GPU("tf32") as gpu:
        (given,) = execute([config], partial(run, gpu=gpu), Store(tmp_path / "given"), executor=InProcess())
    assert own["losses"] == given["losses"]
    assert own["files"] == given["files"]
