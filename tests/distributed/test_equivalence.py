"""⊥Grad on many processes ends where it ends on one: after 50 steps, at any granularity, with both projections."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

import orthograd
from tests.conftest import TORCH
from tests.distributed.ranks import outcomes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TORCH < (2, 9), reason="FSDP2 over gloo reduces gradients wrongly in this torch"),
]
fsdp = pytest.importorskip("torch.distributed.fsdp")
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
    FEW,
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
    agree(even, by_ddp, choices=ALL)


def fsdp_even():
    agree(even, by_fsdp)


def fsdp_uneven():
    agree(uneven, by_fsdp, choices=ALL)


def fsdp_float32():
    # Each step the gradients may differ by 8 · 2⁻²⁴ (a sum over a batch of 8 in another order) and by the 1e-6 to
    # which the CPU engine projects in float32. The rate of 0.05, momentum, which adds up ten steps, and 50 steps make
    # 25 times that of it; gradients here are up to 1.35 times as long as their weights, on average over the steps.
    within = 1.35 * 0.05 * 10 * STEPS * (8 * 2**-24 + 1e-6)
    for network in (even, uneven):
        agree(lambda network=network: network().float(), by_fsdp, choices=ALL, within=within)


def fsdp_uneven_on_four():
    agree(uneven, by_fsdp)


def hybrid_sharding():
    agree(uneven, by_hsdp)


def tensor_parallel():
    agree(even, by_tensor_parallel, share=slice(None))


def tensor_parallel_and_fsdp():
    agree(even, by_both, share=share_of_pair(BATCH))


def cpu_offload():
    agree(uneven, lambda model: by_fsdp(model, offload_policy=fsdp.CPUOffloadPolicy(pin_memory=False)), choices=FEW[:2])


def zero_redundancy_optimizer():
    for options in FEW:
        expected, model = even(), by_ddp(even())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
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


@pytest.fixture(scope="module")
def on_two():
    return outcomes(TWO, 2)


@pytest.fixture(scope="module")
def on_four():
    return outcomes(FOUR, 4)


@pytest.mark.parametrize("case", [case.__name__ for case in TWO])
def test_two_processes_end_where_one_does(on_two, case):
    assert not on_two[case], on_two[case]


@pytest.mark.parametrize("case", [case.__name__ for case in FOUR])
def test_four_processes_end_where_one_does(on_four, case):
    assert not on_four[case], on_four[case]
