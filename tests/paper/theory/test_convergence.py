"""Theorem 3.1, statement by statement, on fewer steps than the command takes."""

from __future__ import annotations

import pytest
import torch

from orthograd.paper.theory.convergence import controls, descended, norm_errors, norm_tolerance, statements, sum_bound
from orthograd.paper.theory.descent import descend, logistic, network, quadratic


@pytest.fixture(scope="module")
def runs():
    return descended(150)


def test_every_step_lowers_the_loss_as_the_theorem_says(runs):
    for problem, path in runs.values():
        assert float(path.excess.max()) <= 2 * problem.rounding  # the rounding of the two losses subtracted


def test_the_bound_is_not_met_by_rounding_alone(runs):
    for problem, path in runs.values():
        assert float(path.decrease[0]) > 1e6 * problem.rounding


def test_sum_of_squares_keeps_its_bound(runs):
    for problem, path in runs.values():
        assert 0 < float(path.squares.sum()) <= sum_bound(problem, path)


def test_norms_grow_by_the_squares_of_the_steps(runs):
    for _, path in runs.values():
        assert float(norm_errors(path).max()) <= norm_tolerance(path)
        assert bool((path.norms.diff(dim=0) >= -1e-14 * path.norms[1:]).all())


def test_gradient_and_weight_turn_parallel(runs):
    for _, path in runs.values():
        assert float(path.sines[-1]) < float(path.sines[0])
    assert float(runs["logistic regression", False][1].sines[-1]) < 1e-4


def test_layers_are_orthogonal_one_by_one(runs):
    _, path = runs["quadratic", True]
    assert path.squares.shape[1] == 4
    assert bool((path.squares <= path.gradients * (1 + 1e-12)).all())


def test_every_statement_but_those_about_the_end_holds_after_few_steps(runs):
    assert all(statement.holds for statement in statements(runs) if "end" not in statement.says)


def test_controls_go_wrong_as_they_must():
    failing = controls(100)
    assert len(failing) == 3
    assert all(control.holds for control in failing)


def test_backtracking_leaves_no_step_above_its_bound():
    problem = network()
    path = descend(problem, steps=40, layerwise=True)
    assert float(path.lipschitz[-1]) > 0.1  # it had to raise its first guess
    assert bool((path.lipschitz.diff() >= 0).all())
    torch.testing.assert_close(path.rates, 0.5 / path.lipschitz)


def test_lipschitz_constants_are_those_of_the_hessian():
    for problem in (quadratic(), logistic()):
        hessian = torch.func.hessian(problem.loss)(problem.start)
        assert float(torch.linalg.eigvalsh(hessian).max()) <= problem.lipschitz * (1 + 1e-12)
