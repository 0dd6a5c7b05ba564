"""The renormalized variant: what it does at a fixed rate and at a falling one."""

from __future__ import annotations

import torch

from orthograd.paper.theory.descent import descend
from orthograd.paper.theory.renormalization import OUTSIDE, RATE, bowl, falling, with_epsilon


def test_steps_keep_the_length_of_the_gradient():
    path = descend(bowl(OUTSIDE), steps=50, layerwise=False, rate=RATE, renormalize=True)
    steps = path.weights.diff(dim=0).norm(dim=1)
    torch.testing.assert_close(steps, RATE * path.gradients[:, 0].sqrt(), rtol=1e-13, atol=0)


def test_plain_steps_do_not():
    path = descend(bowl(OUTSIDE), steps=50, layerwise=False, rate=RATE)
    steps = path.weights.diff(dim=0).norm(dim=1)
    assert float(steps[-1]) < 1e-4 * RATE * float(path.gradients[-1].sqrt())


def test_beyond_the_minimum_the_norm_grows_for_ever_at_a_fixed_rate():
    path = descend(bowl(OUTSIDE), steps=1000, layerwise=False, rate=RATE, renormalize=True)
    norms = path.norms[:, 0].sqrt()
    assert float(norms[1000] / norms[500]) > 5
    assert float(path.losses[-1]) > float(path.losses[0])


def test_falling_rates_have_squares_with_a_finite_sum():
    squares = sum(falling(n) ** 2 for n in range(10_000))
    assert squares < RATE**2 * 21  # 1 + ∫ dx / (1 + x/20)²


def test_a_large_epsilon_lets_it_stop_where_the_gradient_is_not_zero():
    _, sine, gradient = with_epsilon(1.0)
    assert sine < 1e-13
    assert gradient > 1
    assert with_epsilon(1e-8)[1] > 1e-2
