from __future__ import annotations

import importlib
import math

import pytest
import torch

from orthograd.engine.cpu import CpuPlan
from orthograd.engine.dense import DensePlan
from orthograd.engine.plan import Pair, correction, merged
from orthograd.projection import orthogonal_gradient, rounding_of
from tests.conftest import relative_error
from tests.engine.test_engines import triton


def table_of(gradient, weight, pieces):
    rows = []
    for g, w in zip(gradient.chunk(pieces), weight.chunk(pieces), strict=True):
        c = (g @ w) / (w @ w)
        rows.append(torch.stack([w @ w, c, (g - c * w) @ (g - c * w)]))
    return torch.stack(rows)


def test_a_case_worked_by_hand():
    # g = (2, 1), w = (3, 4): B = 25, c = 10/25, R = ‖(0.8, −0.6)‖² = 1. The scale is √(‖g‖²/R) = √5.
    row = merged(table_of(*torch.tensor([[2, 1], [3, 4]], dtype=torch.float64), 2))
    torch.testing.assert_close(row, torch.tensor([25.0, 0.4, 1.0], dtype=torch.float64))
    change = correction(row[None], renormalize=True, rounding=0.0)
    assert change.coefficient.item() == row[1]
    assert math.isclose(change.scale.item(), math.sqrt(5), rel_tol=1e-15)


def test_any_division_merges_to_the_same_moments():
    gradient, weight = torch.randn(2, 1000, dtype=torch.float64)
    whole = table_of(gradient, weight, 1)[0]
    for pieces in (2, 7, 1000):
        torch.testing.assert_close(merged(table_of(gradient, weight, pieces)), whole, rtol=1e-12, atol=0)


def test_merging_keeps_the_residual_of_nearly_parallel_vectors():
    weight, other = torch.randn(2, 1000, dtype=torch.float64)
    gradient = weight + 1e-9 * other
    # ‖g‖² − ⟨g,w⟩²/‖w‖² would be all rounding here: 1e-18 of 1.
    residual = merged(table_of(gradient, weight, 10))[2]
    expected = 1e-18 * merged(table_of(other, weight, 1))[2]
    assert abs(float(residual / expected) - 1) < 1e-5


def test_pieces_with_zero_weight_add_their_gradient():
    row = merged(torch.tensor([[0.0, 0.0, 4.0], [2.0, 3.0, 1.0]], dtype=torch.float64))
    assert row.tolist() == [2.0, 3.0, 5.0]


def test_what_is_not_finite_is_left_as_it_is():
    table = torch.tensor([[1.0, math.nan, 1.0], [1.0, 1.0, math.inf], [math.inf, 0.0, 1.0]], dtype=torch.float64)
    change = correction(table, renormalize=True, rounding=rounding_of(torch.float32))
    assert change.coefficient.tolist() == [0, 0, 0]
    assert change.scale.tolist() == [1, 1, 1]


def triton_plan(segments, **options):
    return importlib.import_module("orthograd.engine.launch").TritonPlan(segments, **options)


@pytest.mark.parametrize("plan_class", [CpuPlan, DensePlan, pytest.param(triton_plan, marks=triton.marks)])
def test_every_engine_honors_the_contract(plan_class):
    """With merge one row per segment; measuring changes nothing, applying its table is projecting."""
    segments = [[Pair(*torch.randn(2, size)) for size in sizes] for sizes in ((5,), (9000, 3), (0, 40))]
    whole = [[torch.cat(column) for column in zip(*pairs, strict=True)] for pairs in segments]
    plan = plan_class(segments, renormalize=True, merge=True)
    table = plan.measure()
    expected = torch.cat([table_of(gradient.double(), weight.double(), 1) for gradient, weight in whole])
    torch.testing.assert_close(table, expected, rtol=1e-5, atol=1e-7)
    plan.apply_(table)
    for pairs, (gradient, weight) in zip(segments, whole, strict=True):
        result = torch.cat([pair.gradient for pair in pairs])
        assert relative_error(result, orthogonal_gradient(gradient, weight)) < 1e-6
