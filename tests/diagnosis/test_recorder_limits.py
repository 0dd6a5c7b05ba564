"""What a recorder refuses, how it ends, and its figures."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orthograd.diagnosis import Recorder
from tests.conftest import network
from tests.diagnosis.test_recorder import step


def test_removing_ends_it_and_keeps_what_was_seen():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Recorder(optimizer, every=1) as recorder:
        step(model, optimizer, 0)
    step(model, optimizer, 1)
    recorder.remove()
    assert recorder.steps == [0]
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("every", [0, -1, 2.5, True])
def test_a_period_that_is_none_is_refused(every):
    with pytest.raises(ValueError, match="expected every to be a number of steps, at least 1, got"):
        Recorder(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1), every=every)


def test_what_cannot_be_told_is_refused(tmp_path):
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with pytest.raises(TypeError, match=r"expected a torch.optim.Optimizer, got 3"):
        Recorder(3)
    recorder = Recorder(optimizer)
    with pytest.raises(ValueError, match="got none: call optimizer"):
        recorder.table()
    weight.grad = torch.randn(3)
    optimizer.step()
    with pytest.raises(ValueError, match="expected one of the quantities cosine"):
        recorder.figure(tmp_path / "a.png", "colour")


def test_names_that_are_none_or_not_unique_are_refused():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in (model, model.parameters(), dict(model.named_parameters()), 3):
        with pytest.raises(TypeError, match=r"expected named_parameters=model.named_parameters\(\), got"):
            Recorder(optimizer, named_parameters=given)
    with pytest.raises(ValueError, match="expected a different name for each parameter, got 'w' for two"):
        Recorder(optimizer, named_parameters=[("w", parameter) for parameter in model.parameters()])
    assert not optimizer._optimizer_step_pre_hooks


def test_sharded_parameters_are_refused(tmp_path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    try:
        shard = nn.Parameter(distribute_tensor(torch.randn(4), init_device_mesh("cpu", (1,)), [Shard(0)]))
        with pytest.raises(ValueError, match="expected whole parameters, got group 0, parameter 0 as a DTensor"):
            Recorder(torch.optim.SGD([shard], lr=0.1))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("quantity", ["radial", "cosine", "update_cosine", "drift", "removed", "weight_norm"])
def test_figures_are_written(tmp_path, quantity):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    for number in range(4):
        step(model, optimizer, number)
    recorder.figure(tmp_path / "map.png", quantity)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_few_records_are_drawn_too(tmp_path, steps):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    recorder = Recorder(optimizer, every=1, named_parameters=model.named_parameters())
    for number in range(steps):
        step(model, optimizer, number)
    recorder.figure(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
