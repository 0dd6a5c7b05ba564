"""On a GPU: steps replayed from a CUDA graph are the steps of the CPU, and the same bits each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from orthograd.paper.grokking.rows import ROWS
from orthograd.paper.grokking.training import WARM_UP, Training, trained

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPS = WARM_UP + 4


def weights_on(device, row, seeds):
    training = Training(row, seeds, torch.device(device))
    training.advance(STEPS)
    return {name: value.detach().cpu() for name, value in training.networks.parameters.items()}


@pytest.mark.parametrize("name", ["adamw", "ortho_adamw", "ortho_sgd", "stablemax", "parity_ortho_adamw"])
def test_replayed_steps_are_those_of_the_cpu(name):
    row = replace(ROWS[name], dtype="float64", loss_dtype="float64", epsilon=1e-8)
    ours, theirs = (weights_on(device, row, [0, 1]) for device in ("cuda", "cpu"))
    for key in ours:
        torch.testing.assert_close(ours[key], theirs[key], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["ortho_adamw", "stablemax", "float16_40", "transformer_ortho_adamw"])
def test_a_row_gives_the_same_bits_each_time(name):
    first, second = (weights_on("cuda", ROWS[name], [0, 1]) for _ in range(2))
    for key in first:
        assert torch.equal(first[key], second[key])


def test_dropout_changes_from_replay_to_replay_and_belongs_to_its_seed():
    # In float64: the gradient of the keys' bias is zero but for rounding, which AdamW would scale to whole steps.
    row = replace(ROWS["transformer_adamw"], dtype="float64", loss_dtype="float64", epsilon=1e-8)
    training = Training(row, [3], torch.device("cuda"))
    training.advance(STEPS)
    masks = [training.networks.masks(10)[1] for _ in range(2)]
    assert not torch.equal(*masks)
    alone, beside = weights_on("cuda", row, [3]), weights_on("cuda", row, [1, 3])
    for key in alone:
        torch.testing.assert_close(alone[key][0], beside[key][1], rtol=1e-7, atol=1e-9)


def test_measurements_between_replays_change_nothing():
    row = replace(ROWS["parity_ortho_adamw"], steps=40)
    _, curves = trained(row, [0, 1], torch.device("cuda"))
    training = Training(row, [0, 1], torch.device("cuda"))
    training.advance(40)
    norm = sum(
        value.detach().double().square().sum((*range(1, value.ndim),))
        for value in training.networks.parameters.values()
    )
    assert [curve[-1] for curve in curves["weight_norm"]] == pytest.approx(norm.sqrt().tolist(), rel=1e-3)
