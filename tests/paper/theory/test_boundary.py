"""The decision-boundary theorem on networks that ⊥Grad has brought to rest."""

from __future__ import annotations

import pytest
import torch

from orthograd.paper.theory.boundary import (
    MODELS,
    SIZES,
    _of_maximum,
    changed_along_gradient,
    changed_at_random,
    changed_by_rescaling,
    defects,
    trained,
)


@pytest.fixture(scope="module")
def rested():
    return trained("homogeneous", steps=1000, seeds=3)


@pytest.fixture(scope="module")
def fresh():
    return {name: trained(name, steps=20, seeds=4) for name in MODELS}


def test_no_prediction_changes_along_the_gradient_of_a_network_at_rest(rested):
    for size in SIZES:
        along = changed_along_gradient(rested, size)
        # A share of the plane, as far from the boundary as the step leaves the rays of the layers.
        assert bool((along <= 10 * size * rested.sines).all())


def test_random_steps_as_long_change_some(rested):
    assert float(changed_at_random(rested, 0.1).min()) > 0.01


def test_before_it_is_at_rest_the_gradient_changes_predictions_too(fresh):
    assert float(changed_along_gradient(fresh["homogeneous"], 0.1).mean()) > 0.005


@pytest.mark.parametrize("name", ["homogeneous", "with ReLU"])
def test_homogeneous_networks_have_no_defect_but_rounding(fresh, name):
    assert float(defects(fresh[name]).max()) < 1e-14
    assert float(changed_by_rescaling(fresh[name], 0.3).max()) == 0


@pytest.mark.parametrize("name", ["with biases", "with batch norm", "with a residual sum"])
def test_others_have_one_and_change_when_rescaled(fresh, name):
    assert float(defects(fresh[name]).mean()) > 1e-2
    assert float(changed_by_rescaling(fresh[name], 0.3).mean()) > 1e-3


def test_weights_before_batch_norm_do_not_matter_in_size(fresh):
    net = fresh["with batch norm"]
    points = torch.randn(500, 2, dtype=torch.float64)
    before, after = (net.model([net.weights[0] * c, *net.weights[1:]], points) for c in (1, 10))
    assert float((after - before).norm() / before.norm()) < 1e-2  # the 1e-5 beside the variance is all that is left


def test_training_lowers_every_seed(fresh, rested):
    assert float(rested.sines.max()) < float(fresh["homogeneous"].sines.max())


def test_a_stationary_point_need_not_be_a_minimum():
    assert all(statement.holds for statement in _of_maximum())
