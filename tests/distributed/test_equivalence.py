"""⊥Grad on many processes ends where it ends on one: after 50 steps, at any granularity, with both projections.

On each rank it adds two small all-reduces a step, gathers nothing, and takes less than 1 MiB.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

import orthograd
from orthograd.lab.bench.step import peak
from tests.conftest import TORCH
from tests.distributed.ranks import outcomes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TORCH < (2, 9), reason="FSDP2 over gloo reduces gradients wrongly in this torch"),
]
fsdp = pytest.importorskip("torch.distributed.fsdp")
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

from tests.distributed.checkpoint import FOLDER, first_half, second_half  # noqa: E402
from tests.distributed.parallelism import (  # noqa: E402
    by_both,
    by_ddp,
    by_fsdp,
    by_hsdp,
    by_tensor_parallel,
    share_of_pair,
)
from tests.distributed.training import (  # noqa: E402
    ALL,
    BATCH,
    ENDS,
    FEW,
    GRANULARITIES,
    STEPS,
    agree,
    assert_same,
    batch,
    even,
    loss_of,
    optimizer_of,
    own_share,
    trained,
    uneven,
)


def ddp():
    agree(even, by_ddp, choices=FEW)


def fsdp_even():
    agree(even, by_fsdp, choices=ENDS)


def fsdp_uneven():
    agree(uneven, by_fsdp, choices=ALL)


def fsdp_float32():
    # Each step the gradients may differ by 8 · 2⁻²⁴ (a sum over a batch of 8 in another order) and by the 1e-6 to
    # which the CPU engine projects in float32. The rate of 0.05, momentum, which adds up ten steps, and 50 steps make
    # 25 times that of it; gradients here are up to 1.35 times as long as their weights, on average over the steps.
    within = 1.35 * 0.05 * 10 * STEPS * (8 * 2**-24 + 1e-6)
    for network in (even, uneven):
        agree(lambda network=network: network().float(), by_fsdp, choices=ENDS, within=within)


def fsdp_uneven_on_four():
    agree(uneven, by_fsdp, choices=ENDS)


def hybrid_sharding():
    agree(uneven, by_hsdp, choices=ENDS)


def tensor_parallel():
    agree(even, by_tensor_parallel, share=slice(None))


def tensor_parallel_and_fsdp():
    agree(even, by_both, share=share_of_pair(BATCH), choices=ENDS)


def cpu_offload():
    agree(uneven, lambda model: by_fsdp(model, offload_policy=fsdp.CPUOffloadPolicy(pin_memory=False)), choices=ENDS)


def zero_redundancy_optimizer():
    # Twice projected, a gradient without its norm back would be another one.
    for options, is_everywhere in product([*FEW, {"granularity": "model", "renormalize": False}], (False, True)):
        expected, model = even(), by_ddp(even())
        with orthograd.everywhere(**options) if is_everywhere else nullcontext():
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
        if not is_everywhere:
            orthograd.attach(optimizer, **options)
        trained(expected, optimizer_of(expected, **options))
        trained(model, optimizer, share=own_share())
        assert_same(model, expected, options)


def accumulation_without_sync():
    """Two halves of each share, only the second of which talks to other ranks."""
    for by in (by_ddp, by_fsdp):
        expected, model = uneven(), by(uneven())
        trained(expected, optimizer_of(expected))
        optimizer = optimizer_of(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            halves = batch(step, own_share()).chunk(2)
            _backward_alone(model, halves[0])
            (loss_of(model, halves[1]) / 2).backward()
            optimizer.step()
        assert_same(model, expected, by.__name__)


def _backward_alone(model, inputs):
    if hasattr(model, "no_sync"):
        with model.no_sync():
            (loss_of(model, inputs) / 2).backward()
        return
    model.set_requires_gradient_sync(False)
    (loss_of(model, inputs) / 2).backward()
    model.set_requires_gradient_sync(True)


def mixed_precision():
    """bfloat16 in the layers, float32 weights and sums: what one process does with a bfloat16 copy, rank by rank."""
    expected = uneven().float()
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = by_fsdp(copy.deepcopy(expected), mp_policy=policy)
    optimizers, ranks = [optimizer_of(expected), optimizer_of(model)], dist.get_world_size()
    for step in range(10):  # later the rounding of bfloat16 makes two ways out of one
        shares = batch(step).float().chunk(ranks)
        for optimizer in optimizers:
            optimizer.zero_grad()
        for share in shares:
            low = copy.deepcopy(expected).bfloat16()
            loss_of(low, share.bfloat16()).backward()
            for parameter, twin in zip(expected.parameters(), low.parameters(), strict=True):
                part = twin.grad.float() / ranks
                parameter.grad = part if parameter.grad is None else parameter.grad + part
        loss_of(model, shares[dist.get_rank()].bfloat16()).backward()
        for optimizer in optimizers:
            optimizer.step()
        assert_same(model, expected, f"step {step}", within=1e-2)


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


def talk_of_fsdp():
    at_most_two(deep, by_fsdp)


def talk_of_tensor_parallel():
    at_most_two(even, by_tensor_parallel)


def talk_of_hybrid_sharding():
    at_most_two(deep, by_hsdp)


def talk_of_tensor_parallel_and_fsdp():
    at_most_two(even, by_both)


def talk_is_small():
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


TWO = [
    ddp,
    fsdp_even,
    fsdp_uneven,
    fsdp_float32,
    cpu_offload,
    zero_redundancy_optimizer,
    accumulation_without_sync,
    mixed_precision,
]
FOUR = [fsdp_uneven_on_four, hybrid_sharding, tensor_parallel, tensor_parallel_and_fsdp]
ADDED_ON_TWO = [talk_of_fsdp, talk_is_small, little_memory_for_nearly_parallel_gradients]
ADDED_ON_FOUR = [talk_of_tensor_parallel, talk_of_hybrid_sharding, talk_of_tensor_parallel_and_fsdp]


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """All cases of one start of the processes: it takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(tmp_path_factory.mktemp("checkpoint")))
        yield outcomes([first_half, second_half, *TWO, *ADDED_ON_TWO], 2)


@pytest.fixture(scope="module")
def on_four(on_two):
    return outcomes([second_half, *FOUR, *ADDED_ON_FOUR], 4)


def test_training_goes_on_from_a_checkpoint_of_two_ranks_on_two(on_two):
    assert not on_two["first_half"], on_two["first_half"]
    assert not on_two["second_half"], on_two["second_half"]


def test_and_on_four(on_four):
    assert not on_four["second_half"], on_four["second_half"]


@pytest.mark.usefixtures("on_two")
def test_and_on_one():
    error = outcomes([second_half], 1)["second_half"]
    assert not error, error


@pytest.mark.parametrize("case", [case.__name__ for case in TWO])
def test_two_processes_end_where_one_does(on_two, case):
    assert not on_two[case], on_two[case]


@pytest.mark.parametrize("case", [case.__name__ for case in FOUR])
def test_four_processes_end_where_one_does(on_four, case):
    assert not on_four[case], on_four[case]


@pytest.mark.parametrize("case", [case.__name__ for case in ADDED_ON_TWO])
def test_a_step_of_two_processes_adds_little_talk_and_memory(on_two, case):
    assert not on_two[case], on_two[case]


@pytest.mark.parametrize("case", [case.__name__ for case in ADDED_ON_FOUR])
def test_a_step_of_four_processes_adds_little_talk(on_four, case):
    assert not on_four[case], on_four[case]
