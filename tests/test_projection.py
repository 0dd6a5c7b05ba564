from __future__ import annotations

import math

import pytest
import torch

from orthograd.projection import orthogonal_component, orthogonal_gradient, radial_component
from tests.conftest import at_angle, cosine, relative_error


def test_a_case_worked_by_hand():
    # ⟨g, w⟩ = 2·3 + 1·4 = 10, ‖w‖² = 25, so the radial part is 0.4 w = (1.2, 1.6) and g⊥ = (0.8, −0.6), ‖g‖ = √5.
    gradient, weight = torch.tensor([2.0, 1.0]), torch.tensor([3.0, 4.0])
    torch.testing.assert_close(radial_component(gradient, weight), torch.tensor([1.2, 1.6]))
    plain = orthogonal_gradient(gradient, weight, renormalize=False)
    torch.testing.assert_close(plain, torch.tensor([0.8, -0.6], dtype=torch.float64))
    torch.testing.assert_close(orthogonal_gradient(gradient, weight), math.sqrt(5) * plain)


def test_gradient_is_the_sum_of_its_two_parts():
    gradient, weight = torch.randn(2, 5, 7, dtype=torch.float64)
    parts = orthogonal_component(gradient, weight) + radial_component(gradient, weight)
    torch.testing.assert_close(parts, gradient)


def test_rows_are_projected_one_by_one():
    gradient, weight = torch.randn(2, 6, 4, 3)
    found = orthogonal_gradient(gradient, weight, rows=True)
    for row in range(6):
        torch.testing.assert_close(found[row], orthogonal_gradient(gradient[row], weight[row]))


@pytest.mark.parametrize("renormalize", [True, False])
def test_parallel_gives_exactly_zero_and_zero_gives_zero(renormalize):
    weight = torch.randn(1000)
    for gradient in (weight, -3.3 * weight, 0.1 * weight, torch.zeros_like(weight)):
        assert orthogonal_gradient(gradient, weight, renormalize=renormalize).abs().max() == 0


def test_zero_weight_has_no_direction_to_remove():
    gradient = torch.randn(10)
    torch.testing.assert_close(orthogonal_gradient(gradient, torch.zeros(10)), gradient.double())


def test_nearly_parallel_is_orthogonal_and_keeps_its_length():
    gradient, weight = at_angle(1e-6, 10_000)
    found = orthogonal_gradient(gradient, weight)
    assert cosine(found, weight) < 1e-12
    assert abs(float(found.norm() / gradient.double().norm()) - 1) < 1e-12


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_small_gradients_are_not_shrunk(size):
    gradient, weight = torch.randn(2, 100)
    found = orthogonal_gradient(gradient * size, weight)
    assert relative_error(found.norm(), (gradient * size).double().norm()) < 1e-12


def test_complex_numbers_take_the_real_inner_product():
    gradient, weight = torch.randn(2, 20, dtype=torch.complex64)
    found = orthogonal_gradient(gradient, weight)
    assert abs(float((found * weight.to(found.dtype).conj()).sum().real)) < 1e-12
    # Multiplying by i turns a weight by a right angle: all of such a gradient is orthogonal.
    torch.testing.assert_close(orthogonal_gradient(1j * weight, weight), 1j * weight.to(found.dtype))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_broken_gradients_come_back_as_they_were(broken):
    gradient, weight = torch.randn(2, 10)
    gradient[3] = broken
    found = orthogonal_gradient(gradient, weight)
    assert torch.equal(found.nan_to_num(7), gradient.double().nan_to_num(7))
