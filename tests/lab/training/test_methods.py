"""Methods as plain data, and ⊥Grad on one layer type only."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import torch

from orthograd.lab.networks import MODELS
from orthograd.lab.training.config import Config
from orthograd.lab.training.layers import parameters_of
from orthograd.lab.training.loop import train
from orthograd.lab.training.methods import LAYER_TYPES, METHODS, SELECTIONS, Method
from orthograd.lab.training.steps import limit_growth_, loss, optimizer_of
from orthograd.lab.training.task import Task
from tests.lab.training.test_training import Memory, weights


def test_methods_can_be_read_without_torch():
    code = "import sys; from orthograd.lab.training.methods import METHODS; print('torch' in sys.modules, len(METHODS))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", str(len(METHODS))]


def test_only_is_a_layer_type_of_a_method_with_orthograd():
    with pytest.raises(ValueError, match="expected only among head"):
        Method("", "", orthogonal={}, only="tail")
    with pytest.raises(ValueError, match="of a method with ⊥Grad"):
        Method("", "", only="head")


def test_what_decays_is_a_layer_type():
    with pytest.raises(ValueError, match="expected decayed among head"):
        Method("", "", decayed="tail")


def test_only_orthograd_starts_later():
    with pytest.raises(ValueError, match="expected a start of 0"):
        Method("", "", start=5)


def test_a_later_start_is_the_baseline_until_then_and_resumes_with_the_same_bits():
    later = Config(epochs=8, model="cnn_batchnorm", method="orthograd_after_5")
    task = Task.of(later)
    whole, plain = train(later, task), train(dataclasses.replace(later, method="baseline"), task)
    assert whole.losses[:5] == plain.losses[:5]
    assert whole.losses[5:] != plain.losses[5:]
    for crash_at in (3, 6):
        memory = Memory(crash_at=crash_at)
        with pytest.raises(KeyboardInterrupt):
            train(later, task, keeper=memory)
        assert torch.equal(weights(train(later, task, keeper=memory)), weights(whole))


@pytest.mark.parametrize(("radial", "expected"), [(-3.0, -0.5), (-0.4, -0.4), (2.0, 2.0)])
def test_limited_growth_keeps_what_cancels_decay(radial, expected):
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    empty = torch.nn.Parameter(torch.zeros(2))
    across = torch.tensor([-4.0, 3.0])
    weight.grad, empty.grad = radial * weight.detach() + across, torch.ones(2)
    optimizer = torch.optim.SGD([weight, empty], lr=0.1, weight_decay=0.5)
    limit_growth_(optimizer)
    torch.testing.assert_close(weight.grad, expected * weight.detach() + across)
    assert torch.equal(empty.grad, torch.ones(2))
    with pytest.raises(ValueError, match="expected optimizer sgd for the method limited_growth, got adamw"):
        optimizer_of(Config(method="limited_growth", optimizer="adamw"), MODELS["cnn"]((1, 8, 8), 10))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_decay_can_be_limited_to_convolutions(optimizer):
    network = MODELS["cnn_batchnorm"]((1, 8, 8), 10)
    for parameter in network.parameters():
        torch.nn.init.ones_(parameter).grad = torch.zeros_like(parameter)
    config = Config(method="decay_conv_only_orthograd", optimizer=optimizer, learning_rate=0.1, weight_decay=0.5)
    optimizer_of(config, network).step()
    chosen = {id(parameter) for parameter in parameters_of(network, "convolution")}
    assert len(chosen) < len(list(network.parameters()))
    for parameter in network.parameters():  # without gradients, only decay acts
        assert torch.equal(parameter, torch.full_like(parameter, 0.95 if id(parameter) in chosen else 1.0))


@pytest.mark.parametrize("model", ["resnet18", "cnn_batchnorm"])
def test_layer_types_are_disjoint_and_leave_nothing_of_a_resnet(model):
    network = MODELS[model]((3, 32, 32), 10)
    by_type = {
        layer_type: {id(parameter) for parameter in parameters_of(network, layer_type)} for layer_type in LAYER_TYPES
    }
    assert sum(map(len, by_type.values())) == len(set.union(*by_type.values()))
    if model == "resnet18":
        assert set.union(*by_type.values()) == {id(parameter) for parameter in network.parameters()}
    assert all(parameter.ndim == 4 for parameter in parameters_of(network, "convolution"))
    assert [parameter.shape[0] for parameter in parameters_of(network, "head")] == [10, 10]


def test_what_a_network_lacks_is_named():
    with pytest.raises(ValueError, match="parameters of type norm_weight, got Sequential without"):
        parameters_of(MODELS["cnn"]((1, 8, 8), 10), "norm_weight")


@pytest.mark.parametrize("layer_type", SELECTIONS)
def test_orthograd_acts_on_that_layer_type_and_on_nothing_else(layer_type):
    torch.manual_seed(0)
    network = MODELS["cnn_batchnorm"]((1, 8, 8), 10)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)  # biases of zero would have no direction
    (name,) = (name for name, method in METHODS.items() if method.only == layer_type and method.orthogonal == {})
    optimizer = optimizer_of(Config(method=name), network)
    torch.nn.functional.cross_entropy(network(torch.rand(16, 1, 8, 8)), torch.arange(16) % 10).backward()
    raw = {id(p): p.grad.clone() for p in network.parameters()}
    before = {id(p): p.detach().clone() for p in network.parameters()}
    optimizer.step()
    chosen = {id(parameter) for parameter in parameters_of(network, layer_type)}
    for parameter in network.parameters():
        is_changed = not torch.equal(parameter.grad, raw[id(parameter)])
        if id(parameter) not in chosen:
            assert not is_changed
            continue
        weight = before[id(parameter)]
        cosine = (parameter.grad * weight).sum() / (parameter.grad.norm() * weight.norm())
        assert abs(float(cosine)) < 1e-4


def test_rivals_with_orthograd_differ_from_them_in_orthograd_alone():
    for name in ("label_smoothing", "focal", "mixup"):
        alone, both = METHODS[name], METHODS[f"{name}_orthograd"]
        assert alone.orthogonal is None
        assert both.orthogonal == {}
        assert dataclasses.replace(both, orthogonal=None, title=alone.title, details=alone.details) == alone
        logits, targets = torch.randn(4, 3), torch.eye(3)[[0, 1, 2, 0]]
        assert torch.equal(loss(alone, logits, targets), loss(both, logits, targets))


@pytest.mark.parametrize("method", ["orthograd_update", "orthograd_row", "orthograd_model"])
def test_other_forms_of_orthograd_train(method):
    torch.manual_seed(0)
    network = MODELS["cnn_batchnorm"]((1, 8, 8), 10)
    optimizer = optimizer_of(Config(method=method), network)
    images, labels = torch.rand(16, 1, 8, 8), torch.arange(16) % 10
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(network(images), labels)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]
