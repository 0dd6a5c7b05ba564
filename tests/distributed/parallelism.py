"""The ways to spread a network over ranks, as a user writes them."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def by_ddp(model):
    return nn.parallel.DistributedDataParallel(model)


def by_fsdp(model, **options):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def by_hsdp(model):
    return by_fsdp(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))


def by_tensor_parallel(model):
    return parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), PLAN)


def by_both(model):
    """FSDP over two, tensor parallel over two; the last layer is on the data dimension of the mesh alone."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    parallelize_module(model, mesh["model"], PLAN)
    return by_fsdp(model, mesh=mesh["data"])


def share_of_pair(batch):
    """The rows of a batch for this rank of `by_both`: ranks of one tensor-parallel pair see the same."""
    size, rank = batch // 2, dist.get_rank() // 2
    return slice(rank * size, (rank + 1) * size)
