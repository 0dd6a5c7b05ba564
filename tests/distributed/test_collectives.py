"""What ⊥Grad adds on each rank: two small all-reduces a step, nothing gathered, and less than 1 MiB."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import orthograd
from orthograd.lab.bench.step import peak
from tests.conftest import TORCH
from tests.distributed.ranks import outcomes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TORCH < (2, 9), reason="FSDP2 over gloo reduces gradients wrongly in this torch"),
]
pytest.importorskip("torch.distributed.fsdp")
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

from tests.distributed.parallelism import (  # noqa: E402
    by_both,
    by_fsdp,
    by_hsdp,
    by_tensor_parallel,
)
from tests.distributed.training import FEW, GRANULARITIES, batch, even, loss_of, optimizer_of  # noqa: E402


def deep():
    """Twenty tensors."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).double()


def at_most_two(network, parallel):
    for options in FEW:
        model = parallel(network())
        optimizer = optimizer_of(model, **options)
        loss_of(model, batch(0)).backward()
        with CommDebugMode() as talk:
            optimizer.step()
        counts = {str(name): count for name, count in talk.get_comm_counts().items()}
        assert set(counts) <= {"c10d.allreduce_"}, (options, counts)
        assert talk.get_total_counts() <= 2, (options, counts)
        if options["granularity"] != "row":
            assert talk.get_total_counts() == 2, "nothing was counted"


def fsdp():
    at_most_two(deep, by_fsdp)


def tensor_parallel():
    at_most_two(even, by_tensor_parallel)


def hybrid_sharding():
    at_most_two(deep, by_hsdp)


def tensor_parallel_and_fsdp():
    at_most_two(even, by_both)


def the_talk_is_small():
    """24 bytes a tensor in all, whatever its size."""
    model = by_fsdp(nn.Sequential(nn.Linear(8, 500), nn.Linear(500, 8)).double())
    optimizer = optimizer_of(model)
    loss_of(model, batch(0)).backward()
    with Sizes() as sizes:
        optimizer.step()
    assert sizes.elements == [8, 4]  # four tensors: two sums each, then one


def little_memory_for_nearly_parallel_gradients():
    """Those take the careful path, with temporaries in float64; a shard of one layer has 8 MiB of them."""
    for parallel in (by_fsdp, by_tensor_parallel):
        for granularity in GRANULARITIES:
            model = parallel(nn.Sequential(nn.Linear(500, 4096), nn.Tanh(), nn.Linear(4096, 500)))
            for parameter in model.parameters():
                parameter.grad = parameter.detach() * 3 + torch.randn_like(parameter) * 1e-4
            project = partial(orthograd.orthogonalize_, list(model.parameters()), granularity=granularity)
            extra = peak(torch.device("cpu"), project)
            assert 0.5 < extra <= 1.0, f"{parallel.__name__} {granularity}: {extra} MiB"  # 0.5: the path was taken


class Sizes:
    """The number of elements in each all-reduce."""

    def __enter__(self):
        self.elements, self._original = [], torch.distributed.all_reduce

        def noting(tensor, *args, **kwargs):
            self.elements.append(tensor.numel())
            return self._original(tensor, *args, **kwargs)

        torch.distributed.all_reduce = noting
        return self

    def __exit__(self, *_):
        torch.distributed.all_reduce = self._original


TWO = [fsdp, the_talk_is_small, little_memory_for_nearly_parallel_gradients]
FOUR = [tensor_parallel, hybrid_sharding, tensor_parallel_and_fsdp]


@pytest.fixture(scope="module")
def found():
    return {ranks: outcomes(cases, ranks) for ranks, cases in ((2, TWO), (4, FOUR))}


@pytest.mark.parametrize(
    ("ranks", "case"), [*((2, case.__name__) for case in TWO), *((4, case.__name__) for case in FOUR)]
)
def test_a_step_adds_little_talk_and_memory(found, ranks, case):
    assert not found[ranks][case], found[ranks][case]
