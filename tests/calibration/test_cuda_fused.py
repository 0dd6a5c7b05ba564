"""The kernel that reads logits once, on a GPU, against torch in float64. Skips without a GPU."""

from __future__ import annotations

import pytest
import torch

from orthograd.calibration import STREAMING, Evaluation, evaluate, fused
from orthograd.calibration.metrics import CLASSWISE
from orthograd.lab.bench.step import peak
from tests.calibration.test_fused import check, layouts

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

ASKED = tuple(name for name in STREAMING if name not in CLASSWISE)


def same(logits, labels, **options):
    """Metrics by the kernel equal those of torch in float64."""
    found, expected = (evaluate(z, labels, metrics=ASKED, **options) for z in (logits, logits.double()))
    assert (found.samples, found.ignored) == (expected.samples, expected.ignored)
    for name, value in expected.as_row().items():
        assert getattr(found, name) == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), name


@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_values_are_those_of_float64_in_every_order_of_memory(dtype):
    for scores, labels in layouts(dtype):
        strides = scores.stride()
        there = torch.empty_strided(scores.shape, strides, dtype=dtype, device="cuda").copy_(scores)
        check(there, labels.cuda())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("classes", [50_304, 50_257, 1_000, 129])
def test_tokens_are_evaluated_as_in_float64(classes, dtype):
    logits = (4 * torch.randn(500, classes, device="cuda")).to(dtype)
    labels = logits.argmax(1).where(torch.rand(500, device="cuda") < 0.5, torch.randint(classes, (500,), device="cuda"))
    same(logits, labels)
    check(logits[None], labels)
    is_padding = torch.rand(500, device="cuda") < 0.3
    logits[is_padding] = float("nan")
    same(logits, labels.where(~is_padding, -100), ignore_index=-100)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(3, 19, 64, 64), (2, 150, 33, 17), (5, 2, 7)])
def test_maps_are_evaluated_as_in_float64(shape, dtype):
    logits = (2 * torch.randn(shape, device="cuda")).to(dtype)
    labels = torch.randint(shape[1], (shape[0], *shape[2:]), device="cuda")
    same(logits, labels, classes_dim=1)
    same(logits, labels.where(torch.rand(labels.shape, device="cuda") < 0.5, 255), classes_dim=1, ignore_index=255)


def test_rows_beyond_2_to_the_31_elements_are_their_own():
    logits = torch.zeros(45_000, 50_304, device="cuda", dtype=torch.bfloat16)
    logits[-3:] = 4 * torch.randn(3, 50_304, device="cuda", dtype=torch.bfloat16)
    labels = torch.arange(45_000, device="cuda")
    values, before = fused.row_values(logits[None], labels, with_variance=True)
    last, rank = fused.row_values(logits[None, -3:], labels[-3:], with_variance=True)
    assert values[:, -3:].equal(last)
    assert before[-3:].equal(rank)
    check(logits[None, -3:], labels[-3:])


def test_a_far_label_and_logits_far_below_it():
    scores = torch.randn(1, 6, 5000, device="cuda")
    scores[0, 0, 17] += 350
    scores[0, 1, 250] -= 1e5
    scores[0, 2, 100:140] = -3e38
    check(scores, torch.tensor([3, 250, 1, 130, 0, 4999], device="cuda"))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_is_named(broken):
    logits, labels = torch.randn(40, 5000, device="cuda"), torch.arange(40, device="cuda")
    for place in ((0, 3), (7, 7), (39, 4999)):
        logits[place] = broken
        for metrics in (["ece"], ASKED):
            with pytest.raises(ValueError, match=rf"expected finite logits, got {broken} in row {place[0]}"):
                evaluate(logits, labels, metrics=metrics)
        logits[place] = 0.0


def test_memory_does_not_grow_with_logits_or_batches():
    logits, labels = torch.randn(4000, 50_304, device="cuda"), torch.randint(50_304, (4000,), device="cuda")

    def run(batches):
        evaluation = Evaluation(metrics=ASKED)
        for _ in range(batches):
            evaluation.update(logits, labels)
        evaluation.compute()

    run(1)
    device = torch.device("cuda")
    few, many = (peak(device, lambda batches=batches: run(batches)) for batches in (1, 8))
    assert many < few + 1
    assert many < 64  # MiB; the logits have 767
