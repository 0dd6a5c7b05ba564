"""⊥Grad steps that never settle, and what holds of them all the same."""

from __future__ import annotations

import math

import pytest
import torch

from orthograd.paper.theory.wandering import (
    _of_barrier,
    _of_sequence,
    _of_walk,
    harmonic_angles,
    spiral_lipschitz,
    spiral_loss,
    spiral_orthogonal_gradient,
    start,
    walked,
)


@pytest.fixture(scope="module")
def k():
    return spiral_lipschitz(120, 24, 16)


def test_closed_gradient_is_that_of_the_loss():
    points = torch.randn(50, 3, dtype=torch.float64)
    points[:, 2] = points[:, 2].abs() + 0.2
    for point in points:
        gradient = torch.func.grad(spiral_loss)(point)
        expected = gradient - (gradient @ point) / (point @ point) * point
        gradient_by_hand = torch.tensor(spiral_orthogonal_gradient(tuple(point.tolist())), dtype=torch.float64)
        # cos(16/v) is off by 16/v roundings, and the sum of the three parts cancels.
        torch.testing.assert_close(gradient_by_hand, expected, rtol=1e-10, atol=1e-13 * float(gradient.norm() + 1))


def test_the_loss_is_flat_where_the_path_winds_to():
    for height in (1e-2, 1e-3):
        point = torch.tensor([1.0, 0.0, height], dtype=torch.float64)
        assert float(spiral_loss(point)) < 1e-80
        assert float(torch.func.hessian(spiral_loss)(point).abs().max()) < 1e-60


@pytest.mark.slow
def test_a_finer_grid_finds_hardly_more_curvature(k):
    assert spiral_lipschitz(240, 32, 24) < 1.02 * k


def test_steps_go_round_though_their_squares_have_a_sum(k):
    walk = walked(0.9 / k, 120_000)
    assert all(statement.holds for statement in _of_walk(walk, k))
    assert walk.places[-1].norm < 1.001
    assert walk.length > 2 * math.pi


def test_no_step_crosses_the_barrier(k):
    assert all(statement.holds for statement in _of_barrier(0.9 / k))


def test_a_far_too_long_step_crosses_it(k):
    assert not _of_barrier(20 / k)[0].holds


def test_the_harmonic_sequence_goes_round():
    assert all(statement.holds for statement in _of_sequence(harmonic_angles()))
    few = harmonic_angles(3)  # by hand: norms 1, √1.01, √(1.01 + 1/121)
    by_hand = math.atan(1 / 10) + math.atan(1 / 11 / math.sqrt(1.01)) + math.atan(1 / 12 / math.sqrt(1.01 + 1 / 121))
    assert float(few[-1]) == pytest.approx(by_hand, rel=1e-14)


def test_start_lies_on_the_floor_of_the_valley():
    x, y, z = start()
    assert math.hypot(x, y, z) == pytest.approx(1, rel=1e-15)
    losses = []
    for turn in (-0.05, 0.0, 0.05):
        turned = [x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn), z]
        losses.append(float(spiral_loss(torch.tensor(turned, dtype=torch.float64))))
    assert losses[1] < min(losses[0], losses[2])
