"""The kernel that reads logits once, by Triton's interpreter, against the same in plain torch in float64."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
import torch

from orthograd.calibration import STREAMING, Evaluation, evaluate, fused
from orthograd.calibration.metrics import CLASSWISE
from orthograd.calibration.predictions import of_logits
from orthograd.calibration.rows import Rows
from tests.calibration.samples import predictions

pytest.importorskip("triton")
IS_INTERPRETED = importlib.util.find_spec("triton") is not None and not torch.cuda.is_available()
interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="the interpreter runs where there is Triton and no GPU")

ASKED = tuple(name for name in STREAMING if name not in CLASSWISE)
EVERY_VALUE = {"top5_accuracy", "max_logit", "logit_variance"}
NAMES = ("confidence", "loss", "brier", "entropy", "max_logit", "logit_variance")


@pytest.fixture
def _interpreted(monkeypatch):
    """All that the kernel supports goes through it, in tiles that hold neither all classes nor all rows."""
    monkeypatch.setattr(fused, "is_fused", fused.fits)
    monkeypatch.setattr(fused, "MANY", fused.Tile(1, 128, 2, 1))
    monkeypatch.setattr(fused, "APART", fused.Tile(16, 1, 1, 1))
    monkeypatch.setattr(fused, "MANY_APART", fused.Tile(4, 8, 1, 1))


def layouts(dtype=torch.float32):
    """Scores (outer, inner, classes) in each order of memory, with labels."""
    generator = torch.Generator().manual_seed(0)
    many, few = (4 * torch.randn(shape, generator=generator).to(dtype) for shape in ((1, 3, 320), (1, 30, 10)))
    maps = 4 * torch.randn(2, 7, 5, 4, generator=generator).to(dtype)
    unaligned = 4 * torch.randn(1, 3, 77, generator=generator).to(dtype)
    for scores in (many, few, many[:, :, :60:2], maps.flatten(2).movedim(1, -1), unaligned):
        yield scores, torch.randint(scores.shape[2], scores.shape[:2], generator=generator).flatten()


def expected_of(scores, labels):
    wide = of_logits(scores.reshape(-1, scores.shape[2]).double(), labels, EVERY_VALUE, 5)
    return torch.stack([getattr(wide, name) for name in NAMES])


def rank_of(scores, labels):
    """The place of each label among the classes, sorted by score and then by number."""
    order = scores.reshape(-1, scores.shape[2]).float().argsort(dim=1, descending=True, stable=True)
    return (order == labels[:, None]).int().argmax(1)


def check(scores, labels):
    values, before = fused.row_values(scores, labels, with_variance=True)
    torch.testing.assert_close(values, expected_of(scores, labels), rtol=1e-10, atol=5e-10)
    assert before.equal(rank_of(scores, labels).int())


@interpreted
@pytest.mark.parametrize("dtype", fused.DTYPES)
@pytest.mark.usefixtures("_interpreted")
def test_values_are_those_of_float64_in_every_order_of_memory(dtype):
    for scores, labels in layouts(dtype):
        check(scores, labels)


@interpreted
@pytest.mark.usefixtures("_interpreted")
def test_equal_scores_rank_by_class():
    scores = torch.randint(3, (1, 6, 300), generator=torch.Generator().manual_seed(0)).float()
    check(scores, torch.arange(6) * 50)
    values, before = fused.row_values(torch.zeros(1, 3, 300), torch.tensor([0, 1, 299]), with_variance=False)
    assert before.tolist() == [0, 1, 299]
    assert values[0].tolist() == [1 / 300] * 3  # exactly, so that edges of bins are met


@interpreted
@pytest.mark.usefixtures("_interpreted")
def test_three_to_one_by_hand():
    """Probabilities ¾ and ¼: the Brier score is (¼)² + (¼)², or (¾)² + (¾)² for the other label."""
    scores = torch.tensor([[[3.0, 1.0]]]).log().expand(1, 2, 2).contiguous()
    values, before = fused.row_values(scores, torch.tensor([0, 1]), with_variance=False)
    quarter = torch.tensor(0.25, dtype=torch.float64)
    entropy = torch.special.entr(quarter) + torch.special.entr(1 - quarter)
    right = torch.stack([1 - quarter, -(1 - quarter).log(), 2 * quarter**2, entropy])
    wrong = torch.stack([1 - quarter, -quarter.log(), 2 * (1 - quarter) ** 2, entropy])
    torch.testing.assert_close(values[:4], torch.stack([right, wrong], 1), rtol=0, atol=1e-7)  # log 3 in float32
    assert before.tolist() == [0, 1]


@interpreted
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("offset", [0.0, 700.0, -9e4])
def test_a_label_may_be_far_below_the_highest_logit_and_other_logits_far_below_the_label(offset):
    scores = torch.randn(1, 6, 300) + offset
    scores[0, 0, 17] += 350
    scores[0, 1, 250] -= 1e5
    scores[0, 2, 100:140] = -3e38
    check(scores, torch.tensor([3, 250, 1, 130, 0, 299]))


@interpreted
@pytest.mark.usefixtures("_interpreted")
def test_float32_cannot_move_a_large_logit():
    """1e10 − 300 is 1e10 in float32."""
    scores = torch.zeros(1, 3, 200)
    scores[0, 0, 5], scores[0, 1, 5], scores[0, 2, 7] = 1e10, -1e10, 1e10
    labels = torch.tensor([5, 5, 5])
    values, _ = fused.row_values(scores, labels, with_variance=False)  # the variance makes it read such rows again
    torch.testing.assert_close(values[:5], expected_of(scores, labels)[:5], rtol=1e-10, atol=5e-10)


@interpreted
@pytest.mark.usefixtures("_interpreted")
def test_a_row_does_not_depend_on_its_neighbors():
    scores = torch.randn(1, 16, 10)
    labels = torch.arange(16) % 10
    alone, _ = fused.row_values(scores, labels, with_variance=True)
    scores[0, 3, 7] = 900.0
    together, _ = fused.row_values(scores, labels, with_variance=True)
    others = torch.arange(16) != 3
    assert together[:, others].equal(alone[:, others])
    assert not together[:, 3].equal(alone[:, 3])


@interpreted
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize(
    ("broken", "place"), [(float("nan"), (0, 3)), (float("inf"), (1, 299)), (float("-inf"), (2, 130))]
)
def test_a_logit_that_is_not_finite_is_named(broken, place):
    logits, labels = torch.randn(3, 300), torch.tensor([3, 1, 2])
    logits[place] = broken
    words = rf"expected finite logits, got {broken} in row {place[0]}, class {place[1]}"
    for metrics in (["ece"], ["loss"], ASKED):
        with pytest.raises(ValueError, match=words):
            evaluate(logits, labels, metrics=metrics)


@interpreted
@pytest.mark.parametrize(
    ("shape", "options", "is_weighted", "ignored"),
    [
        pytest.param((8, 300), {}, False, None, id="rows"),
        pytest.param((50, 3), {}, False, 2, id="few classes"),
        pytest.param((2, 6, 300), {"classes_dim": -1}, False, -100, id="tokens"),
        pytest.param((3, 5, 4, 6), {"classes_dim": 1}, True, -100, id="maps"),
        pytest.param((5, 60), {"classes_dim": 0}, True, None, id="classes first"),
    ],
)
def test_an_evaluation_is_that_of_float64(shape, options, is_weighted, ignored, request, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(shape, generator=generator)
    scores = logits.movedim(options.get("classes_dim", -1), -1)
    labels = torch.randint(scores.shape[-1], scores.shape[:-1], generator=generator)
    if ignored is not None:
        labels = labels.where(torch.rand(labels.shape, generator=generator) < 0.6, ignored)
        logits = logits.where((labels != ignored).unsqueeze(options.get("classes_dim", -1)), float("nan"))
    weights = torch.rand(labels.shape, generator=generator) if is_weighted else None
    metrics = [name for name in ASKED if not (is_weighted and ("chance" in name or "debiased" in name))]
    options = {**options, "metrics": metrics, "ignore_index": ignored, "weights": weights}
    expected = evaluate(logits.double(), labels, **options)
    request.getfixturevalue("_interpreted")
    monkeypatch.setattr(fused, "AT_ONCE", 7)  # several parts, within an image and across them
    found = evaluate(logits, labels, **options)
    assert (found.samples, found.ignored) == (expected.samples, expected.ignored)
    for name, value in expected.as_row().items():
        assert getattr(found, name) == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), name


def test_views_are_read_where_they_lie():
    maps = torch.randn(2, 5, 4, 6)
    for scores, shape in ((maps.movedim(1, -1), (2, 24, 5)), (maps, (1, 40, 6)), (maps[:, :, :, :3], (1, 40, 3))):
        matrices = fused.matrices(scores)
        assert matrices.shape == shape
        assert matrices.data_ptr() == scores.data_ptr()
    assert fused.matrices(maps[:, :, ::2, ::2].movedim(1, -1)) is None


def test_others_take_the_path_in_torch():
    logits, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    assert fused.fits(Rows(logits, labels), {"ece"})
    assert not fused.fits(Rows(logits.double(), labels), {"ece"})
    assert not fused.fits(Rows(logits[:, 0], labels, pair=torch.atleast_2d), {"ece"})
    assert not fused.is_fused(Rows(logits, labels), {"ece"})  # on a CPU


@interpreted
def test_the_kernel_is_used_only_where_it_applies(monkeypatch):
    logits, labels = predictions(30, dtype=torch.float32)
    monkeypatch.setattr(fused, "is_fused", fused.fits)
    monkeypatch.setattr(fused, "row_values", Mock(side_effect=fused.row_values))
    Evaluation().update(logits, labels)  # with classwise metrics
    Evaluation(metrics=["ece"]).update(logits.double(), labels)
    fused.row_values.assert_not_called()
    Evaluation(metrics=["ece"]).update(logits, labels)
    fused.row_values.assert_called_once()


COMPILE = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from orthograd.calibration.predictions_triton import predictions_kernel as kernel

for dtype in (tl.float16, tl.bfloat16, tl.float32):
    for rows, lanes, each in ((1, 512, 1), (1, 1024, 128 // dtype.primitive_bitwidth), (256, 1, 1), (32, 32, 1)):
        constants = {"ROWS": rows, "LANES": lanes, "EACH": each, "STAGES": 1, "SPREAD": rows == 1}
        if each > 1:
            constants["class_stride"] = 1
        types = {"scores": f"*{dtype}", "labels": "*i64", "values": "*fp64", "before": "*i32"}
        sizes = dict.fromkeys(("rows", "inner", "classes", "outer_stride", "inner_stride", "class_stride"), "i32")
        kinds = {**types, **sizes, **dict.fromkeys(constants, "constexpr")}
        signature = {name: kinds[name] for name in kernel.arg_names}
        aligned = [*types, "outer_stride", "inner_stride"] if each > 1 else []
        attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=attributes)
        ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
        assert "0d3FF71547652B82FE" in ptx  # log₂ e in float64
print("compiled")
"""


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]
