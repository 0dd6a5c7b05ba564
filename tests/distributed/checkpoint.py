"""torch's distributed checkpoint: training goes on where it was, on as many ranks as before or on others."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.distributed.parallelism import by_fsdp
from tests.distributed.training import STEPS, assert_same, optimizer_of, own_share, trained, uneven

HALF = STEPS // 2
FOLDER = "ORTHOGRAD_TEST_CHECKPOINT"
OPTIONS = {"granularity": "model", "project": "update"}


def first_half():
    model = by_fsdp(uneven())
    optimizer = optimizer_of(model, **OPTIONS)
    trained(model, optimizer, share=own_share(), steps=range(HALF))
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=os.environ[FOLDER])


def second_half():
    model = by_fsdp(uneven())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0)  # only the checkpoint can bring it back
    optimizer = optimizer_of(model, **OPTIONS)
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=os.environ[FOLDER])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    trained(model, optimizer, share=own_share(), steps=range(HALF, STEPS))
    expected = uneven()
    trained(expected, optimizer_of(expected, **OPTIONS))
    assert_same(model, expected, f"on {dist.get_world_size()} ranks")
