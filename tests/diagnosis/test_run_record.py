from __future__ import annotations

import copy
import json

import torch
from torch import nn

from orthograd.diagnosis import recorded_diagnosis
from orthograd.lab.networks import MODELS
from tests.diagnosis.networks import images


def test_a_record_is_small_and_tells_start_from_end():
    start, batch = MODELS["cnn_batchnorm"]((1, 8, 8), 10), images(100)
    end = copy.deepcopy(start)
    optimizer = torch.optim.SGD(end.parameters(), lr=0.05, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(end(batch[0]), batch[1]).backward()
        optimizer.step()
    end.eval()
    kept = copy.deepcopy(end.state_dict())
    found = recorded_diagnosis(start, end, nn.functional.cross_entropy, *batch)
    assert len(json.dumps(found)) < 3000
    assert found["samples"] == 100
    parameters = found["parameters"]
    assert list(parameters) == [name for name, _ in start.named_parameters()]
    assert parameters["0.weight"]["kind"] == "rows invariant"
    assert parameters["0.weight"]["start"]["radial"] < 1e-6
    assert parameters["1.bias"]["start"] == {"radial": 0.0, "share": 0.0, "norm": 0.0}
    head = parameters["11.weight"]
    assert head["kind"] == "part of outputs"
    assert head["start"]["norm"] != head["end"]["norm"]
    assert not any(module.training for module in end.modules())
    assert all(torch.equal(value, kept[name]) for name, value in end.state_dict().items())


def test_dropout_takes_no_random_numbers():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10))
    state = torch.get_rng_state()
    batch = images()
    after = torch.get_rng_state()
    recorded_diagnosis(model, model, nn.functional.cross_entropy, *batch)
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(state, after)
    assert all(module.training for module in model.modules())


def test_passes_may_be_taken_by_something_faster():
    model, taken = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.Linear(16, 10)), []

    def watched(forward):
        def effect():
            taken.append(forward())
            return taken[-1]

        return effect

    batch = images()
    plain = recorded_diagnosis(model, model, nn.functional.cross_entropy, *batch)
    assert recorded_diagnosis(model, model, nn.functional.cross_entropy, *batch, repeated=watched) == plain
    assert len(taken) >= 1 + 3 * 5  # a bias that is zero has no size


def test_what_a_size_is_for_is_found_in_full_precision():
    model, batch = MODELS["cnn_batchnorm"]((1, 8, 8), 10), images(100)
    plain = recorded_diagnosis(model, model, nn.functional.cross_entropy, *batch)["parameters"]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = recorded_diagnosis(model, model, nn.functional.cross_entropy, *batch)["parameters"]
    assert {name: one["kind"] for name, one in rounded.items()} == {name: one["kind"] for name, one in plain.items()}
    assert rounded["11.weight"]["end"] != plain["11.weight"]["end"]  # the gradient is what training sees
