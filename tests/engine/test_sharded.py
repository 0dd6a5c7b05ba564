"""DTensor parameters over two real processes (gloo): the same result as on one, with two small all-reduces a step."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

import orthograd
from tests.conftest import TORCH, relative_error
from tests.distributed.ranks import outcomes

tensor_api = pytest.importorskip("torch.distributed.tensor")
fsdp = pytest.importorskip("torch.distributed.fsdp")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(fsdp, "fully_shard"), reason="this torch has no public FSDP2"),
]
GRANULARITIES = ("tensor", "row", "group", "model")
RANKS, STEPS = 2, 5


def network():
    """Rows that two ranks share evenly (6), unevenly (5), and where one rank gets nothing (1)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 8, generator=generator)


def trained(model, optimizer):
    for step in range(STEPS):
        optimizer.zero_grad()
        (model(batch(step)).square().sum() * 3).backward()
        optimizer.step()
    return model


def full(parameter):
    return parameter.full_tensor() if isinstance(parameter, tensor_api.DTensor) else parameter


def compare(shard, *, granularity, project):
    expected = network()
    sharded = shard(copy.deepcopy(expected))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (expected, sharded)]
    for optimizer in optimizers:
        orthograd.attach(optimizer, granularity=granularity, project=project)
    trained(expected, optimizers[0])
    calls = all_reduces(lambda: trained(sharded, optimizers[1]))
    for (name, a), b in zip(expected.named_parameters(), sharded.parameters(), strict=True):
        error = relative_error(full(b), a)
        assert error < 2e-6, f"{granularity} {project} {name}: {error}"
    at_least = 0 if granularity == "row" else 2 * STEPS  # whole rows need no talk between ranks
    assert at_least <= calls <= 2 * STEPS, f"{granularity} {project}: {calls} all-reduces in {STEPS} steps"


def all_reduces(run):
    """How many all-reduces ⊥Grad makes during a run; torch's own parallelism calls others."""
    with mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as spy:
        run()
    return spy.call_count


def by_fsdp(model):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fsdp.fully_shard(layer)
    return fsdp.fully_shard(model)


def by_tensor_parallel(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (RANKS,))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def uneven_and_empty():
    """Shards of 2 + 1 rows, of 1 + 0 rows, columns cut in two, and a copy on each rank, as one vector and alone."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(1)
    shapes = [(3, 4), (1, 5), (4, 5), (2, 2)]
    placements = [Shard(0), Shard(0), Shard(1), Replicate()]
    whole = [(torch.randn(s), torch.randn(s)) for s in shapes]
    for granularity in GRANULARITIES:
        plain, sharded = [], []
        for (gradient, weight), placement in zip(whole, placements, strict=True):
            plain.append(nn.Parameter(weight.clone()))
            plain[-1].grad = gradient.clone()
            sharded.append(nn.Parameter(distribute_tensor(weight.clone(), mesh, [placement])))
            sharded[-1].grad = distribute_tensor(gradient.clone(), mesh, [placement])
        orthograd.orthogonalize_(plain, granularity=granularity)
        orthograd.orthogonalize_(sharded, granularity=granularity)
        for a, b in zip(plain, sharded, strict=True):
            assert relative_error(full(b.grad), a.grad) < 1e-6, granularity


def parallel_gradient_is_zero_on_every_rank():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(2)
    weight = torch.randn(5, 3)
    parameter = nn.Parameter(distribute_tensor(weight, mesh, [Shard(0)]))
    parameter.grad = distribute_tensor(weight * 3.3, mesh, [Shard(0)])
    orthograd.orthogonalize_([parameter])
    assert full(parameter.grad).abs().max() == 0


def fully_sharded():
    for granularity in GRANULARITIES:
        for project in ("gradient", "update"):
            compare(by_fsdp, granularity=granularity, project=project)


def tensor_parallel():
    for granularity in GRANULARITIES:
        for project in ("gradient", "update"):
            compare(by_tensor_parallel, granularity=granularity, project=project)


def flat_parameters_are_refused():
    for use_orig_params in (True, False):
        model = fsdp.FullyShardedDataParallel(network(), use_orig_params=use_orig_params, device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for options in ({}, {"project": "update"}):
            with pytest.raises(ValueError, match=r"FSDP1.*fully_shard \(FSDP2\)"):
                orthograd.attach(optimizer, **options)
        with pytest.raises(ValueError, match="FSDP1"):
            orthograd.orthogonalize_(model.parameters())
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    orthograd.attach(optimizer)
    sharded = fsdp.FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    sharded(batch(0)).square().sum().backward()
    with pytest.raises(ValueError, match="FSDP1"):  # sharded after attach
        optimizer.step()


CASES = [
    *([fully_sharded] if TORCH >= (2, 9) else []),  # before, FSDP2 over gloo reduces gradients wrongly
    tensor_parallel,
    uneven_and_empty,
    parallel_gradient_is_zero_on_every_rank,
    flat_parameters_are_refused,
]


@pytest.fixture(scope="module")
def on_two():
    return outcomes(CASES, RANKS)


@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_two_processes_agree_with_one(on_two, case):
    assert not on_two[case], on_two[case]
