"""Finite length, and the curvature of the loss on the sphere."""

from __future__ import annotations

import torch

from orthograd.paper.theory.descent import descend, logistic
from orthograd.paper.theory.path_length import conditions, contraction, distant, on_last_sphere


def test_contraction_of_a_case_worked_by_hand():
    # L = ½‖θ − θ*‖² at θ on the ray of θ*: curvature across is 1 − (‖θ‖ − ‖θ*‖)/‖θ‖ = ‖θ*‖/‖θ‖ = 10/5.
    weight = torch.tensor([5.0, 0.0], dtype=torch.float64)
    assert abs(contraction(distant(), weight, 0.3) - (1 - 0.3 * 2)) < 1e-9


def test_the_condition_of_a_case_worked_by_hand():
    # There G = 10 − 5, so η(k + G/‖θ‖) = 0.9 (1 + 1).
    problem = distant()
    path = descend(problem, steps=1, layerwise=False, rate=0.9)
    path.weights[0] = torch.tensor([5.0, 0.0], dtype=torch.float64)
    assert abs(float(conditions(problem, path)[0]) - 1.8) < 1e-14


def test_a_small_start_grows_until_it_can_settle():
    problem = distant()
    path = descend(problem, steps=40, layerwise=False, rate=0.9)
    condition = conditions(problem, path)
    assert float(condition[0]) > 2 > float(condition[-1])
    assert bool((path.losses.diff() <= 1e-12).all())
    assert float(on_last_sphere(problem, path).diff().max()) > 1


def test_the_rate_is_that_of_the_sphere_and_not_of_space():
    problem = logistic()
    rate = 0.9 / (problem.lipschitz or 1)
    path = descend(problem, steps=260, layerwise=False, rate=rate)
    sizes = path.squares.sum(1).sqrt()
    measured = float(sizes[250] / sizes[210]) ** (1 / 40)
    assert abs(measured - contraction(problem, path.weights[-1], rate)) < 5e-3
