from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import orthograd
from orthograd.diagnosis import Recorder
from tests.conftest import TORCH, loss_of, network


def step(model, optimizer, number):
    optimizer.zero_grad()
    loss_of(model, number).backward()
    optimizer.step()


def expected(before, after, gradient):
    before, after, gradient = (tensor.detach().double().flatten() for tensor in (before, after, gradient))
    angle = gradient @ before / (gradient.norm() * before.norm())
    update = after - before
    return {
        "cosine": float(angle),
        "radial": float(angle**2),
        "weight_norm": float(before.norm()),
        "gradient_norm": float(gradient.norm()),
        "update_cosine": float(update @ before / (update.norm() * before.norm())),
    }


@pytest.mark.parametrize("attached", ["never", "before", "after"])
@pytest.mark.parametrize("project", ["gradient", "update"])
def test_numbers_are_those_of_direct_computation(attached, project):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if attached == "before":
        orthograd.attach(optimizer, project=project)
    recorder = Recorder(optimizer, every=2, named_parameters=model.named_parameters())
    if attached == "after":
        orthograd.attach(optimizer, project=project)
    wanted, firsts = {}, {}
    for number in range(5):
        optimizer.zero_grad()
        loss_of(model, number).backward()
        kept = {name: (p.detach().clone(), p.grad.clone()) for name, p in model.named_parameters()}
        optimizer.step()
        for name, (before, gradient) in kept.items():
            firsts.setdefault(name, float(before.double().norm()))
            wanted[name, number] = expected(before, dict(model.named_parameters())[name], gradient)
    assert recorder.steps == [0, 2, 4]
    for name, found in recorder.history().items():
        for i, number in enumerate(recorder.steps):
            numbers = {quantity: values[i] for quantity, values in found.items()}
            for quantity, value in wanted[name, number].items():
                if math.isfinite(value):
                    assert numbers[quantity] == pytest.approx(value, rel=1e-6, abs=1e-12), (name, quantity)
                else:
                    assert numbers[quantity] is None
            if firsts[name]:
                drift = wanted[name, number]["weight_norm"] / firsts[name] - 1
                assert numbers["drift"] == pytest.approx(drift, abs=1e-12)


def last_update_cosines(project):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    orthograd.attach(optimizer, project=project)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    for number in range(6):
        step(model, optimizer, number)
    found = recorder.history()
    return [abs(found[name]["update_cosine"][-1]) for name in ("conv.weight", "head.weight")]


def test_momentum_makes_updates_radial_again_unless_the_update_is_projected():
    assert min(last_update_cosines("gradient")) > 1e-3
    assert max(last_update_cosines("update")) < 1e-5


def test_shares_of_the_whole_gradient_add_up_to_what_is_radial():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    recorder = Recorder(optimizer, named_parameters=model.named_parameters())
    step(model, optimizer, 0)
    found = recorder.history()
    energy = sum(values["gradient_norm"][0] ** 2 for values in found.values())
    for values in found.values():
        if values["radial"][0] is not None:
            share = values["radial"][0] * values["gradient_norm"][0] ** 2 / energy
            assert values["removed"][0] == pytest.approx(share)


class Reads(TorchDispatchMode):
    """Counts how often a value goes from a tensor to Python."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "_local_scalar_dense" in str(func) or "is_nonzero" in str(func)
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_back_until_it_is_asked_for():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = Recorder(optimizer, every=1)
    with Reads() as reads:
        for number in range(3):
            step(model, optimizer, number)
    assert reads.count == 0
    assert len(recorder.steps) == 3
    with reads:
        model.scale.item()
    assert reads.count == 1  # such a read would have been seen


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_never_waited_for():
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = Recorder(optimizer, every=1)
    images, labels = torch.randn(6, 1, 8, 8, device="cuda"), torch.randint(0, 3, (6,), device="cuda")
    for is_watched in (False, True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        torch.cuda.set_sync_debug_mode("error" if is_watched else "default")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(recorder.history()) == len(list(model.parameters()))


def test_steps_between_records_take_no_copy():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    recorder = Recorder(optimizer, every=100)
    step(model, optimizer, 0)
    assert recorder._before is None
    calls = []
    recorder._measure_gradients = lambda: calls.append(1)
    for number in range(1, 100):
        step(model, optimizer, number)
    assert calls == []
    assert recorder.steps == [0]


def test_lbfgs_calls_its_closure_many_times_and_the_first_gradient_counts():
    model = nn.Linear(3, 1)
    inputs = torch.randn(8, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    orthograd.attach(optimizer)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        calls.append(model.weight.grad.clone())
        return loss

    before = model.weight.detach().clone()
    optimizer.step(closure)
    assert len(calls) > 1
    found = recorder.history()["weight"]
    assert found["gradient_norm"][0] == pytest.approx(float(calls[0].norm()), rel=1e-6)
    wanted = expected(before, model.weight, calls[0])
    assert found["update_cosine"][0] == pytest.approx(wanted["update_cosine"], rel=1e-5)
    optimizer.step(closure=closure)
    assert recorder.steps == [0, 1]


def test_steps_that_a_scaler_skips_are_no_steps():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for factor in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 3)).square().sum() * factor).backward()
        gradient = model.weight.grad / scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
    assert recorder.steps == [0, 1]
    assert recorder.history()["weight"]["gradient_norm"][-1] == pytest.approx(float(gradient.norm()), rel=1e-6)


@pytest.mark.skipif(TORCH < (2, 5), reason="fused SGD with a scaler on the CPU came with torch 2.5")
def test_the_scale_of_a_fused_optimizer_is_taken_out():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(model(torch.ones(2, 3)).square().sum()).backward()
    gradient = model.weight.grad.clone()
    scaler.step(optimizer)
    assert recorder.history()["weight"]["gradient_norm"][0] == pytest.approx(float(gradient.norm()) / 1024, rel=1e-6)


def test_groups_that_come_later_are_recorded_from_then_on():
    first, second = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2))
    optimizer = torch.optim.SGD([first], lr=0.1)
    recorder = Recorder(optimizer, every=1)
    first.grad, second.grad = torch.randn(3), torch.randn(2)
    optimizer.step()
    optimizer.add_param_group({"params": [second]})
    optimizer.step()
    found = recorder.history()
    assert list(found) == ["group 0, parameter 0", "group 1, parameter 0"]
    assert found["group 1, parameter 0"]["cosine"][0] is None
    assert found["group 1, parameter 0"]["cosine"][1] is not None
    assert found["group 1, parameter 0"]["drift"][1] == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.float16])
def test_other_dtypes_are_summed_in_float64(dtype):
    weight = nn.Parameter(torch.randn(40_000, dtype=torch.complex64 if dtype.is_complex else None).to(dtype))
    optimizer = torch.optim.SGD([("w", weight)], lr=0.1) if TORCH >= (2, 6) else torch.optim.SGD([weight], lr=0.1)
    recorder = Recorder(optimizer, named_parameters=[("w", weight)])
    weight.grad = (weight.detach() + torch.randn(40_000).to(dtype)) / 100
    real = torch.view_as_real if dtype.is_complex else (lambda tensor: tensor)
    before, gradient = real(weight.detach().clone()), real(weight.grad.clone())
    optimizer.step()
    found, wanted = recorder.history()["w"], expected(before, real(weight.detach()), gradient)
    for quantity, value in wanted.items():
        assert found[quantity][0] == pytest.approx(value, rel=1e-9), quantity


def test_parameters_without_a_gradient_have_no_angle():
    first, second = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2))
    optimizer = torch.optim.SGD([first, second], lr=0.1)
    recorder = Recorder(optimizer, every=1)
    first.grad = torch.tensor([math.nan, 1.0, 1.0])
    optimizer.step()
    for values in recorder.history().values():
        assert values["cosine"] == values["update_cosine"] == [None]
    assert json.loads(json.dumps(recorder.as_dict()))["steps"] == [0]
    assert "group 0, parameter 1" in recorder.table()


def test_a_closure_that_fails_leaves_no_half_record():
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    recorder = Recorder(optimizer, every=2)

    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        optimizer.step(fails)
    weight.grad = torch.randn(3)
    optimizer.step()
    assert recorder.steps == []
    optimizer.step()
    assert recorder.steps == [2]
