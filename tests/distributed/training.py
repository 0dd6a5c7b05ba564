"""The same training on one process and on many: each rank has its share of every batch."""

from __future__ import annotations

import copy
from itertools import product

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import orthograd
from tests.conftest import relative_error

GRANULARITIES, PROJECTIONS = ("tensor", "row", "group", "model"), ("gradient", "update")
ALL = [{"granularity": g, "project": p} for g, p in product(GRANULARITIES, PROJECTIONS)]
FEW = [ALL[0], ALL[1], ALL[3], ALL[4], ALL[7]]  # every granularity and both projections, where steps are slow
ENDS = [ALL[0], ALL[7]]  # the plainest and what is most involved, where others cover what lies between
STEPS, BATCH, CLOSE = 50, 8, 1e-9  # in float64, where 50 steps do not blur what is right and what is nearly so


def even():
    """Rows that 2 and 4 ranks share evenly."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def uneven():
    """Rows that they do not (6, 5), and where most ranks get nothing (1)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def optimizer_of(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    orthograd.attach(optimizer, **options)
    return optimizer


def batch(step, share=slice(None)):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 8, generator=generator, dtype=torch.float64)[share]


def own_share():
    """This rank's rows of a batch."""
    size = BATCH // dist.get_world_size()
    return slice(dist.get_rank() * size, (dist.get_rank() + 1) * size)


def loss_of(model, inputs):
    return (model(inputs) - 1).square().sum(1).mean()


def trained(model, optimizer, *, share=slice(None), steps=range(STEPS)):
    dtype = next(model.parameters()).dtype
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, batch(step, share).to(dtype)).backward()
        optimizer.step()
    return model


def full(parameter):
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def assert_same(found, expected, what="", within=CLOSE):
    for (name, a), b in zip(expected.named_parameters(), found.parameters(), strict=True):
        error = relative_error(full(b), a)
        assert error < within, f"{what} {name}: {error}"


def agree(network, parallel, *, share=None, choices=FEW, within=CLOSE):
    """Train both ways with each choice; parameters must end the same."""
    for options in choices:
        expected, model = network(), parallel(copy.deepcopy(network()))
        trained(expected, optimizer_of(expected, **options))
        trained(model, optimizer_of(model, **options), share=own_share() if share is None else share)
        assert_same(model, expected, options, within)
