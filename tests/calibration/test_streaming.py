"""Batches, merges and ranks: the same as one pass, in bounded memory."""

from __future__ import annotations

import json
import pickle
from itertools import product

import numpy
import pytest
import torch

from orthograd import calibration
from orthograd.calibration import Evaluation
from tests.calibration.samples import predictions
from tests.distributed.ranks import on_ranks

COUNTS = ("count", "in_top_k", "class_count", "class_hits")


def in_batches(logits, labels, size, **options):
    evaluation = Evaluation(**options)
    for z, y in zip(logits.split(size), labels.split(size), strict=True):
        evaluation.update(z, y)
    return evaluation


@pytest.mark.parametrize(
    ("dtype", "size", "classes"),
    [
        *product([torch.float32], [1, 7, 1000, 1537], [2, 10, 100]),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in product([torch.float64, torch.bfloat16], [7, 1537], [10, 100])
        ),
    ],
)
def test_batches_and_merges_count_the_same_bit_for_bit(classes, size, dtype):
    n = {1: 60, 7: 301}.get(size, 3001)
    logits, labels = predictions(n, classes, dtype=dtype)
    whole, batches, merged = Evaluation(), in_batches(logits, labels, size), Evaluation()
    whole.update(logits, labels)
    for part in torch.arange(n).split(n // 3):
        merged.merge(in_batches(logits[part], labels[part], size))
    for other in (batches, merged):
        for name in COUNTS:
            assert other._sums[name].equal(whole._sums[name]), name
            assert other._sums[name].dtype == torch.int64
        for name in set(whole._sums) - set(COUNTS):
            torch.testing.assert_close(other._sums[name], whole._sums[name], rtol=1e-12, atol=1e-12)
            assert other._sums[name].dtype == torch.float64
        assert other.compute().as_row() == pytest.approx(whole.compute().as_row(), rel=1e-9)


def test_memory_does_not_grow_with_samples_except_where_it_says_so():
    logits, labels = predictions(2000)
    evaluation = Evaluation()
    sizes = set()
    for _ in range(3):
        evaluation.update(logits, labels)
        sizes.add(len(pickle.dumps(evaluation)))
    assert len(sizes) == 1
    assert evaluation.compute().aurc is None
    keeping = Evaluation(metrics=calibration.ALL)
    keeping.update(logits, labels)
    keeping.update(logits, labels)
    assert sum(len(part.confidence) for part in keeping._kept) == 4000
    growing = {name for name, convention in calibration.CONVENTIONS.items() if convention.needs_every_confidence}
    assert growing == {"ece_equal_mass", "aurc", "augrc"} == set(calibration.ALL) - set(calibration.STREAMING)


def test_merged_pieces_that_keep_confidences_equal_one_pass():
    logits, labels = predictions(999)
    left, right = Evaluation(metrics=calibration.ALL), Evaluation(metrics=calibration.ALL)
    left.update(logits[:400], labels[:400])
    right.update(logits[400:], labels[400:])
    left.merge(right)
    whole = calibration.evaluate(logits, labels)
    assert left.compute().aurc == pytest.approx(whole.aurc)
    assert left.compute().ece_equal_mass == pytest.approx(whole.ece_equal_mass)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_forty_million_samples_do_not_drift(dtype):
    # A confidence of 0.9 and an accuracy of one half: float32 sums stop counting at 2^24.
    logits = torch.tensor([[9.0, 1.0]], dtype=torch.float64).log().to(dtype)
    confidence = float(logits.double().softmax(1)[0, 0])
    evaluation = Evaluation(metrics=["top1_accuracy", "ece", "loss"])
    z, y = logits.expand(2_000_000, 2), torch.arange(2_000_000) % 2
    for _ in range(20):
        evaluation.update(z, y)
    found = evaluation.compute()
    assert found.samples == 40_000_000
    assert found.ece == pytest.approx(confidence - 0.5, abs=1e-9 if dtype == torch.float64 else 6e-8)


def test_only_what_is_asked_for_is_computed():
    logits, labels = predictions(100)
    evaluation = Evaluation(metrics=["ece", "loss"])
    evaluation.update(logits, labels)
    assert list(evaluation.compute().as_row()) == ["loss", "ece"]
    assert evaluation.compute().brier is None
    assert "class_count" not in evaluation._sums
    resolution = calibration.evaluate(logits, labels, metrics=["brier_resolution"])
    assert resolution.brier_resolution == pytest.approx(calibration.evaluate(logits, labels).brier_resolution)


def test_a_refused_batch_leaves_no_trace():
    logits, labels = predictions(100)
    evaluation = Evaluation()
    evaluation.update(logits, labels)
    before = evaluation.compute()
    broken = logits.clone()
    broken[7, 3] = torch.nan
    with pytest.raises(ValueError, match=r"got nan in row 7, class 3 \(1 of 1000"):
        evaluation.update(broken, labels)
    assert evaluation.compute() == before


def test_a_refused_first_batch_decides_nothing():
    logits, labels = predictions(100)
    evaluation = Evaluation()
    with pytest.raises(ValueError, match="got inf in row 0, class 0"):
        evaluation.update(torch.full((3, 7), torch.inf), torch.zeros(3).long())
    evaluation.update_probabilities(logits.softmax(1), labels)
    assert (evaluation.compute().classes, evaluation.samples) == (10, 100)


def test_one_that_has_refused_all_of_its_batches_merges_as_an_empty_one():
    evaluation, refused = Evaluation(), Evaluation()
    with pytest.raises(ValueError, match="got nan"):
        refused.update(torch.full((3, 7), torch.nan), torch.zeros(3).long())
    evaluation.merge(refused)
    evaluation.update(*predictions(100))
    evaluation.merge(refused)
    refused.merge(Evaluation())
    assert (evaluation.samples, refused.samples) == (100, 0)
    refused.merge(evaluation)
    assert refused.compute() == evaluation.compute()


def test_bins_of_numpy_are_plain_ones_in_a_result():
    found = calibration.evaluate(*predictions(100), bins=numpy.int64(7))
    assert json.loads(json.dumps(found.as_dict()))["bins"] == 7


def test_evaluations_that_do_not_fit_together_are_not_merged():
    logits, labels = predictions(100)
    evaluation, other = Evaluation(bins=10), Evaluation(bins=15)
    with pytest.raises(ValueError, match="in 15"):
        evaluation.merge(other)
    evaluation.update(logits, labels)
    with pytest.raises(ValueError, match="would count twice"):
        evaluation.merge(evaluation)
    with pytest.raises(ValueError, match="expected 10 classes as before, got 9"):
        evaluation.update(logits[:, :9], labels.clamp_max(8))
    with pytest.raises(ValueError, match="either logits or probabilities throughout"):
        evaluation.update_probabilities(logits.softmax(1), labels)
    with pytest.raises(ValueError, match="at least one batch"):
        Evaluation().compute()
    with pytest.raises(TypeError, match="expected an Evaluation, got list"):
        evaluation.merge([Evaluation()])
    evaluation.merge(Evaluation())  # nothing to add
    assert evaluation.samples == 100


def reduced_over_ranks(results):
    rank = torch.distributed.get_rank()
    logits, labels = predictions(1000)
    mine = slice(0, 300) if rank == 0 else slice(300, 1000)
    evaluation = Evaluation()
    evaluation.update(logits[mine], labels[mine])
    mine_alone, collected = Evaluation(), Evaluation()
    mine_alone.merge(evaluation)
    evaluation.all_reduce()
    assert mine_alone.samples == (300, 700)[rank]
    collected.merge(evaluation)
    for twice in (evaluation, pickle.loads(pickle.dumps(collected))):
        before = twice.compute()
        with pytest.raises(RuntimeError, match=r"expected one all_reduce over ranks \[0, 1\], got a second"):
            twice.all_reduce()
        assert twice.compute() == before
    torch.save(dict(evaluation._sums), f"{results}/{rank}.pt")


@pytest.mark.slow
def test_ranks_of_torch_distributed_reduce_to_one_pass_and_all_refuse_what_does_not_fit_together(tmp_path):
    on_ranks(2, refused_and_reduced, tmp_path)
    whole = Evaluation()
    whole.update(*predictions(1000))
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, value in whole._sums.items():
            if name in COUNTS:
                assert found[name].equal(value)
            torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


def refused_and_reduced(results):
    refused_on_every_rank()  # and none waits
    reduced_over_ranks(results)


def refused_on_every_rank():
    rank = torch.distributed.get_rank()
    logits, labels = predictions(10)
    evaluation = Evaluation()
    if rank == 0:
        evaluation.update(logits, labels)
    with pytest.raises(ValueError, match=r"expected a batch on every rank, got none on ranks \[1\]"):
        evaluation.all_reduce()
    evaluation = Evaluation()
    evaluation.update(logits[:, : 8 + rank], labels.clamp_max(7))
    with pytest.raises(ValueError, match=r"the same settings on every rank, got 8 classes from logits.* 9 classes"):
        evaluation.all_reduce()


def test_ranks_cannot_reduce_kept_confidences():
    evaluation = Evaluation(metrics=calibration.ALL)
    evaluation.update(*predictions(10))
    with pytest.raises(ValueError, match="merge"):
        evaluation.all_reduce()
