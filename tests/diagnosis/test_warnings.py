"""Every warning can be reached, and says what to do."""

from __future__ import annotations

import json
import random

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, SubsetRandomSampler, TensorDataset

from orthograd.diagnosis import diagnose
from orthograd.lab.networks import MODELS
from tests.diagnosis.networks import SLOPE, Vector, images, output

CRITERION = nn.functional.cross_entropy


def test_a_healthy_network_gives_none():
    assert diagnose(MODELS["cnn"]((1, 8, 8), 10), CRITERION, images()).warnings == ()


def test_one_element_that_would_freeze():
    found = diagnose(Vector(), output, SLOPE, scalars=True)
    assert found["b"].action == "freeze"
    (warning,) = found.warnings
    assert warning.startswith("b would never change again")
    assert warning.endswith("Use scalars=False.")
    assert "FREEZES" in str(found)
    assert "acts on 1 and freezes 1 of 2 parameters, and 69.2% of what it removes lies in b." in str(
        found
    )  # 36 of 16 + 36


def test_a_parallel_gradient_that_would_freeze():
    model = Vector()
    found = diagnose(model, lambda m, x: m.w.square().sum(), SLOPE)
    assert found["w"].action == "freeze"
    assert any("Exclude it with where=" in warning for warning in found.warnings)


@pytest.mark.parametrize("renormalize", [True, False])
def test_a_nearly_parallel_gradient(renormalize):
    model = Vector()
    found = diagnose(model, lambda m, x: m.w @ torch.tensor([0.01, 1.0]), SLOPE, renormalize=renormalize)
    (warning,) = [warning for warning in found.warnings if "nearly parallel" in warning]
    assert ("scaled up" in warning) == renormalize
    assert ("nearly freeze" in warning) == (not renormalize)
    assert "1% of its norm" in warning


def test_many_nearly_parallel_gradients_are_told_in_one_sentence():
    model = nn.ParameterList([torch.tensor([0.0, 2.0]) for _ in range(5)])
    slopes = torch.stack([torch.full((5,), 0.01), torch.arange(1.0, 6.0)], 1)
    found = diagnose(model, lambda m, x: sum(w @ slope for w, slope in zip(m, x, strict=True)), slopes)
    (warning,) = found.warnings
    assert "in 4, 3, 2 and 2 more: at a cosine of +1.0000 in 4, the orthogonal 0.2% of its norm" in warning


def test_next_to_nothing_to_act_on():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16, bias=False), nn.LayerNorm(16, elementwise_affine=False))
    found = diagnose(model, lambda m, b: CRITERION(m(b[0]), b[1]), images())
    (warning,) = found.warnings
    assert warning.startswith("⊥Grad will change almost nothing here")
    assert "100% of the energy lies in scale-invariant weights" in warning
    assert "trained yet" not in warning


def test_next_to_nothing_before_training_may_become_more():
    (warning,) = diagnose(Vector(), lambda m, x: m.w @ torch.tensor([1.0, 0.005]) + 0 * m.b.sum(), SLOPE).warnings
    assert warning.startswith("⊥Grad will change almost nothing here")
    assert warning.endswith("diagnose it again later: the radial part may grow.")


def test_gradients_that_are_not_finite():
    found = diagnose(Vector(), lambda m, x: (m.w * torch.inf).sum() + m.b.sum(), SLOPE)
    assert "its gradient is not finite" in found["w"].reason
    assert any("not finite in w" in warning for warning in found.warnings)
    assert found["b"].removed == 0.0
    assert found.as_dict()["rows"][0]["cosine"] is None
    assert "Infinity" not in json.dumps(found.as_dict())


def test_parameters_that_the_loss_does_not_reach():
    found = diagnose(Vector(), lambda m, x: m.w @ x, SLOPE)
    assert any(warning.startswith("The loss does not depend on b:") for warning in found.warnings)


def test_a_gradient_that_is_zero_throughout():
    found = diagnose(Vector(), lambda m, x: 0 * m(x), SLOPE)
    assert any("whole gradient is zero" in warning for warning in found.warnings)


@pytest.mark.parametrize("granularity", ["tensor", "row"])
def test_a_sparse_gradient(granularity):
    model = nn.Embedding(10, 4, sparse=True)
    found = diagnose(model, lambda m, x: m(x).square().sum(), torch.tensor([1, 2]), granularity=granularity)
    assert found["weight"].cosine > 0
    assert any("is sparse" in warning for warning in found.warnings) == (granularity == "tensor")


def loader(samples, **options):
    data = TensorDataset(torch.randn(samples, 4), torch.randint(3, (samples,)))
    return DataLoader(data, **{"batch_size": 16, **options})


@pytest.mark.parametrize(
    ("samples", "options", "is_warned"),
    [
        (34, {}, True),
        (39, {}, True),
        (40, {}, False),  # half of a batch
        (32, {}, False),
        (34, {"drop_last": True}, False),
        (7, {}, False),  # the only batch
        (34, {"sampler": SubsetRandomSampler(range(32))}, False),
        (32, {"sampler": SubsetRandomSampler(range(18))}, True),
        (
            34,
            {"batch_size": None, "sampler": BatchSampler(SequentialSampler(range(34)), 16, False)},
            False,
        ),  # not known
    ],
)
def test_a_small_last_batch_is_told(samples, options, is_warned):
    warnings = diagnose(nn.Linear(4, 3), nn.CrossEntropyLoss(), loader(samples, **options)).warnings
    told = [warning for warning in warnings if "last batch" in warning]
    assert len(told) == is_warned
    if is_warned:
        assert "of 16 samples" in told[0]


def test_a_loader_gives_its_first_batch_and_no_random_number():
    model, own = nn.Linear(4, 3), torch.Generator().manual_seed(5)
    shuffled = loader(34, shuffle=True, generator=own)
    states = torch.get_rng_state(), random.getstate(), own.get_state()
    diagnosis = diagnose(model, nn.CrossEntropyLoss(), shuffled)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert torch.equal(states[2], own.get_state())
    assert diagnosis.rows == diagnose(model, nn.CrossEntropyLoss(), next(iter(shuffled))).rows
    with pytest.raises(ValueError, match="expected a loader with at least one batch, got none"):
        diagnose(model, nn.CrossEntropyLoss(), loader(7, drop_last=True))
