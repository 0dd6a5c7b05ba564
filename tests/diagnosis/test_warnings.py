"""Every warning can be reached, and says what to do."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from orthograd.diagnosis import diagnose
from orthograd.models import MODELS

from .networks import SLOPE, Vector, images, output

CRITERION = nn.functional.cross_entropy


def test_a_healthy_network_gives_none():
    assert diagnose(MODELS["cnn"]((1, 8, 8), 10), CRITERION, images()).warnings == ()


def test_one_element_that_would_freeze():
    found = diagnose(Vector(), output, SLOPE, scalars=True)
    assert found["b"].action == "freeze"
    (warning,) = found.warnings
    assert warning.startswith("b would never change again")
    assert "scalars=False" in warning.replace("Scalars", "scalars")
    assert "FREEZES" in str(found)


def test_a_parallel_gradient_that_would_freeze():
    model = Vector()
    found = diagnose(model, lambda m, x: m.w.square().sum(), SLOPE)
    assert found["w"].action == "freeze"
    assert any("leave it out by where=" in warning.lower() for warning in found.warnings)


@pytest.mark.parametrize("renormalize", [True, False])
def test_a_nearly_parallel_gradient(renormalize):
    model = Vector()
    found = diagnose(model, lambda m, x: m.w @ torch.tensor([0.01, 1.0]), SLOPE, renormalize=renormalize)
    (warning,) = [warning for warning in found.warnings if "nearly freeze" in warning]
    assert ("blown up" in warning) == renormalize
    assert "1 % of its length" in warning


def test_next_to_nothing_to_act_on():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16, bias=False), nn.LayerNorm(16, elementwise_affine=False))
    found = diagnose(model, lambda m, b: CRITERION(m(b[0]), b[1]), images())
    (warning,) = found.warnings
    assert warning.startswith("⊥Grad will change next to nothing here")
    assert "100 % of the energy lies in scale-invariant weights" in warning


def test_gradients_that_are_not_finite():
    found = diagnose(Vector(), lambda m, x: (m.w * torch.inf).sum() + m.b.sum(), SLOPE)
    assert "its gradient is not finite" in found["w"].reason
    assert any("not finite in w" in warning for warning in found.warnings)
    assert found["b"].removed == 0.0
    assert found.as_dict()["rows"][0]["cosine"] is None
    assert "Infinity" not in json.dumps(found.as_dict())


def test_parameters_that_the_loss_does_not_reach():
    found = diagnose(Vector(), lambda m, x: m.w @ x, SLOPE)
    assert any(warning.startswith("The loss does not reach b:") for warning in found.warnings)


def test_a_gradient_that_is_zero_throughout():
    found = diagnose(Vector(), lambda m, x: 0 * m(x), SLOPE)
    assert any("whole gradient is zero" in warning for warning in found.warnings)


@pytest.mark.parametrize("granularity", ["tensor", "row"])
def test_a_sparse_gradient(granularity):
    model = nn.Embedding(10, 4, sparse=True)
    found = diagnose(model, lambda m, x: m(x).square().sum(), torch.tensor([1, 2]), granularity=granularity)
    assert found["weight"].cosine > 0
    assert any("is sparse" in warning for warning in found.warnings) == (granularity == "tensor")
