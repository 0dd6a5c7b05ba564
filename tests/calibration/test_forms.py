"""Forms of predictions: dense, tokens, binary, multi-label, multiple choice, ignored labels, weights."""

from __future__ import annotations

import json
import math

import numpy
import pytest
import sklearn.metrics
import torch
from torch.nn import functional

from orthograd import calibration
from orthograd.calibration import Evaluation, MultiLabelMetrics, evaluate, evaluate_probabilities
from tests.calibration.samples import predictions
from tests.distributed.ranks import on_ranks

UNWEIGHTED = {"ece_by_chance", "ece_by_chance_limit", "ece_debiased", "aurc", "augrc"}
CLASSWISE = {"ece_classwise", "brier_reliability", "brier_resolution", "brier_uncertainty"}


def same(left, right, *, but=()):
    """Equal metrics; sums of other orders differ by rounding."""
    assert left.as_row().keys() - set(but) == right.as_row().keys() - set(but)
    for name, value in left.as_row().items():
        if name not in but:
            assert value == (None if right.as_row()[name] is None else pytest.approx(right.as_row()[name], rel=1e-9)), (
                name
            )


def dense(shape=(3, 5, 4, 6), seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    return logits, labels


def padded(labels, index=-100):
    generator = torch.Generator().manual_seed(7)
    return labels.where(torch.rand(labels.shape, generator=generator) < 0.7, torch.tensor(index))


def binary(n=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(n, generator=generator) < (logits / 2).sigmoid()).long()


def ragged(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(2, 7, (n,), generator=generator).tolist()
    logits = [2 * torch.randn(count, generator=generator, dtype=torch.float64) for count in counts]
    return logits, [int(torch.randint(count, (1,), generator=generator)) for count in counts]


@pytest.mark.parametrize("ignored", [None, -100, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dense_logits_are_those_of_the_rows_and_have_the_loss_of_torch(ignored, dtype):
    logits, labels = dense()
    logits, labels = logits.to(dtype), labels if ignored is None else padded(labels, ignored)
    result = evaluate(logits, labels, classes_dim=1, ignore_index=ignored)
    rows, truth = logits.movedim(1, -1).reshape(-1, 5), labels.flatten()
    is_kept = torch.ones_like(truth, dtype=torch.bool) if ignored is None else truth != ignored
    same(result, evaluate(rows[is_kept], truth[is_kept]))
    expected = functional.cross_entropy(logits, labels, ignore_index=-1 if ignored is None else ignored)
    assert result.loss == pytest.approx(float(expected), rel=1e-6 if dtype == torch.float32 else 1e-12)
    assert result.samples == int(is_kept.sum())
    assert result.ignored == result.as_dict()["ignored"] == int((~is_kept).sum())


@pytest.mark.parametrize("shape", [(7, 3), (2, 9, 3), (3, 4, 2, 3), (1, 2, 3, 4, 3)])
def test_every_position_of_the_classes_is_the_same_for_every_layout(shape):
    generator = torch.Generator().manual_seed(0)
    last = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, shape[:-1], generator=generator)
    expected = evaluate(last.reshape(-1, 3), labels.flatten())
    for dim in range(-last.ndim, last.ndim):
        logits = last.movedim(-1, dim)
        for each in (logits, logits.contiguous(), logits.numpy()):
            same(evaluate(each, labels, classes_dim=dim), expected)
    same(
        evaluate_probabilities(last.softmax(-1), labels, classes_dim=-1),
        evaluate_probabilities(last.reshape(-1, 3).softmax(1), labels.flatten()),
    )


def test_large_maps_are_split_within_an_image(monkeypatch):
    logits, labels = dense((2, 5, 30, 20))
    expected = evaluate(logits, labels, classes_dim=1)
    monkeypatch.setitem(calibration.rows.BLOCK, "cpu", 5 * 37)
    same(evaluate(logits, labels, classes_dim=1), expected)


def test_ignored_positions_may_hold_anything():
    logits, labels = dense()
    labels = padded(labels)
    expected = evaluate(logits, labels, classes_dim=1, ignore_index=-100)
    is_ignored = (labels == -100)[:, None].expand_as(logits)
    same(evaluate(logits.masked_fill(is_ignored, math.nan), labels, classes_dim=1, ignore_index=-100), expected)
    probabilities = logits.softmax(1)
    options = {"classes_dim": 1, "ignore_index": -100}
    expected = evaluate_probabilities(probabilities, labels, **options)
    for value in (math.nan, 0.0, -3.0):
        same(evaluate_probabilities(probabilities.masked_fill(is_ignored, value), labels, **options), expected)
    broken = logits.clone()
    broken[tuple((~is_ignored).nonzero()[0])] = math.nan
    with pytest.raises(ValueError, match=r"finite logits, got nan at \(0, \d, \d\), class 0 \(1 of 360"):
        evaluate(broken, labels, **options)


def test_batches_of_ignored_labels_only_change_nothing_but_their_count():
    logits, labels = dense()
    evaluation = Evaluation(classes_dim=1, ignore_index=-100, metrics=calibration.ALL)
    evaluation.update(logits, torch.full_like(labels, -100))
    with pytest.raises(ValueError, match="at least one sample, got only labels -100"):
        evaluation.compute()
    evaluation.update(logits, labels)
    same(evaluation.compute(), evaluate(logits, labels, classes_dim=1))
    assert evaluation.compute().ignored == labels.numel()


def test_binary_logits_against_scikit_learn():
    logits, labels = binary()
    result = evaluate(logits, labels, task="binary")
    p = logits.sigmoid().numpy()
    assert result.loss == pytest.approx(sklearn.metrics.log_loss(labels, p), rel=1e-12)
    assert result.brier == pytest.approx(2 * sklearn.metrics.brier_score_loss(labels, p), rel=1e-12)
    assert result.top1_accuracy == pytest.approx(100 * sklearn.metrics.accuracy_score(labels, p > 0.5))
    assert result.max_softmax == pytest.approx(numpy.maximum(p, 1 - p).mean(), rel=1e-12)
    assert result.classes == 2
    same(result, evaluate(torch.stack([torch.zeros_like(logits), logits], 1), labels))
    same(
        evaluate_probabilities(p, labels.bool(), task="binary"),
        evaluate_probabilities(numpy.stack([1 - p, p], 1), labels),
    )


def test_the_classwise_ece_of_binary_scores_is_the_binary_ece_of_torchmetrics():
    torchmetrics = pytest.importorskip("torchmetrics.functional.classification")
    logits, labels = binary()
    expected = torchmetrics.binary_calibration_error(logits.sigmoid(), labels, n_bins=10)
    assert evaluate(logits, labels, task="binary").ece_classwise == pytest.approx(float(expected), rel=1e-5)


def test_a_binary_probability_of_one_half_predicts_class_zero():
    assert evaluate_probabilities([0.5], [0], task="binary").top1_accuracy == 100
    assert evaluate([0.0], [1], task="binary").top1_accuracy == 0


def test_binary_maps_with_ignored_pixels():
    logits, labels = binary(360)
    logits, labels = logits.view(3, 10, 12), padded(labels.view(3, 10, 12), 255)
    result = evaluate(logits, labels, task="binary", ignore_index=255)
    is_kept = labels != 255
    expected = functional.binary_cross_entropy_with_logits(logits[is_kept], labels[is_kept].double())
    assert result.loss == pytest.approx(float(expected), rel=1e-12)
    assert result.ignored == int((~is_kept).sum())


@pytest.mark.parametrize("is_logits", [True, False])
def test_multi_label_metrics_are_those_of_each_label_their_mean_and_all_decisions(is_logits):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(200, 4, generator=generator, dtype=torch.float64)
    labels = padded((torch.rand(200, 4, generator=generator) < logits.sigmoid()).long(), -1)
    options = {"ignore_index": -1}
    compute, values = (evaluate, logits) if is_logits else (evaluate_probabilities, logits.sigmoid())
    result = compute(values, labels, task="multilabel", **options)
    assert isinstance(result, MultiLabelMetrics)
    for label, metrics in enumerate(result.per_label):
        same(metrics, compute(values[:, label], labels[:, label], task="binary", **options))
        kept = labels[:, label] != -1
        assert metrics.loss == pytest.approx(
            sklearn.metrics.log_loss(labels[kept, label], logits[kept, label].sigmoid()), rel=1e-12
        )
    same(result.micro, compute(values.flatten(), labels.flatten(), task="binary", **options))
    for name, value in result.as_row().items():
        each = [metrics.as_row()[name] for metrics in result.per_label]
        assert value == (None if None in each else pytest.approx(sum(each) / 4, rel=1e-12)), name
    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert plain["micro"]["ece"] == result.micro.ece
    assert [label["ece"] for label in plain["per_label"]] == [label.ece for label in result.per_label]
    assert "mean over 4 labels" in str(result)


def test_multi_label_maps_have_their_labels_where_the_keyword_says():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 4, 5, 6, generator=generator), torch.randint(2, (3, 4, 5, 6), generator=generator)
    weights = torch.rand(3, 4, 5, 6, generator=generator)
    result = evaluate(logits, labels, task="multilabel", classes_dim=1, weights=weights)
    same(result.per_label[2], evaluate(logits[:, 2], labels[:, 2], task="binary", weights=weights[:, 2]))


def test_a_label_without_samples_is_named():
    labels = torch.tensor([[0, -1], [1, -1]])
    with pytest.raises(ValueError, match=r"a sample of every label, got none of labels \[1\]"):
        evaluate(torch.randn(2, 2), labels, task="multilabel", ignore_index=-1)


@pytest.mark.parametrize("is_logits", [True, False])
def test_multiple_choice_is_a_softmax_over_the_choices_of_each_row(is_logits):
    logits, labels = ragged()
    values = logits if is_logits else [row.softmax(0) for row in logits]
    compute = evaluate if is_logits else evaluate_probabilities
    result = compute(values, labels, task="multiple_choice")
    assert set(result.as_row()) == set(calibration.ALL) - CLASSWISE
    loss = brier = entropy = hits = confidence = in_top = largest = variance = 0.0
    for row, label in zip(logits, labels, strict=True):
        p = numpy.exp(row.numpy() - row.numpy().max())
        p /= p.sum()
        loss -= math.log(p[label])
        brier += ((p - numpy.eye(len(p))[label]) ** 2).sum()
        entropy -= (p * numpy.log(p)).sum()
        hits += p.argmax() == label
        confidence += p.max()
        in_top += (p > p[label]).sum() < 5
        largest += row.abs().max().item()
        variance += row.var().item()
    n = len(labels)
    assert result.loss == pytest.approx(loss / n, rel=1e-12)
    assert result.brier == pytest.approx(brier / n, rel=1e-12)
    assert result.entropy == pytest.approx(entropy / n, rel=1e-12)
    assert result.top1_accuracy == pytest.approx(100 * hits / n)
    assert result.top5_accuracy == pytest.approx(100 * in_top / n)
    assert result.max_softmax == pytest.approx(confidence / n, rel=1e-12)
    if is_logits:
        assert result.max_logit == pytest.approx(largest / n, rel=1e-12)
        assert result.logit_variance == pytest.approx(variance / n, rel=1e-12)
    assert "up to 6 choices" in str(result)
    offsets = numpy.cumsum([0, *map(len, logits)])
    same(compute(torch.cat(values), labels, task="multiple_choice", offsets=offsets), result)


def test_multiple_choice_of_one_number_of_choices_is_multiclass():
    logits, labels = predictions(50, 4)
    options = {"metrics": sorted(set(calibration.ALL) - CLASSWISE)}
    same(evaluate(list(logits), labels, task="multiple_choice"), evaluate(logits, labels, **options))


WEIGHTED = {
    "multiclass": lambda: (*predictions(60, 4, dtype=torch.float64), {}),
    "dense": lambda: (*dense(), {"classes_dim": 1}),
    "ignored": lambda: (dense()[0], padded(dense()[1]), {"classes_dim": 1, "ignore_index": -100}),
    "binary": lambda: (*binary(60), {"task": "binary"}),
    "multilabel": lambda: (binary(60)[0].view(20, 3), binary(60)[1].view(20, 3), {"task": "multilabel"}),
    "multiple_choice": lambda: (*ragged(60), {"task": "multiple_choice"}),
}


def repeated(logits, labels, counts):
    """Each sample as often as its count says, with classes last."""
    if isinstance(logits, list):
        pairs = [(row, label) for row, label, count in zip(logits, labels, counts, strict=True) for _ in range(count)]
        return [row for row, _ in pairs], [label for _, label in pairs]
    return logits.repeat_interleave(counts.flatten(), 0), labels.repeat_interleave(counts.flatten())


@pytest.mark.parametrize("name", WEIGHTED)
def test_whole_weights_are_repetitions(name):
    logits, labels, options = WEIGHTED[name]()
    shape = (len(labels),) if isinstance(labels, list) else labels.shape[:1] if name == "multilabel" else labels.shape
    counts = torch.randint(4, shape, generator=torch.Generator().manual_seed(1))
    weighted = evaluate(logits, labels, weights=counts, **options)
    if name == "multilabel":
        plain = evaluate(logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts, 0), **options)
    elif "classes_dim" in options:
        rows, truth = repeated(logits.movedim(1, -1).reshape(-1, 5), labels.flatten(), counts)
        plain = evaluate(rows, truth, ignore_index=options.get("ignore_index"))
    else:
        plain = evaluate(*repeated(logits, labels, counts), **options)
    assert set(plain.as_row()) - set(weighted.as_row()) == UNWEIGHTED
    for metric, value in weighted.as_row().items():
        assert value == pytest.approx(plain.as_row()[metric], rel=1e-9, abs=1e-12), metric
    assert weighted.weight == plain.samples
    halves = evaluate(logits, labels, weights=counts / 8, **options)
    for metric, value in halves.as_row().items():
        assert value == pytest.approx(weighted.as_row()[metric], rel=1e-9, abs=1e-12), metric


@pytest.mark.parametrize("options", [{}, {"task": "binary"}, {"task": "multilabel"}, {"classes_dim": 1}])
def test_weights_where_no_probability_of_a_true_class_is_counted_in_its_bin(options):
    """Wrong with high confidence: every true class is in the first bin, which is computed as the rest."""
    logits, labels = torch.tensor([[9.0, -9.0]] * 3), torch.tensor([1, 1, 1])
    if "task" in options:
        logits, labels = torch.tensor([9.0, 9.0, 9.0]), torch.tensor([0, 0, 0])
    if options.get("task") == "multilabel":
        logits, labels = logits[:, None], labels[:, None]
    weights = torch.tensor([1.0, 2.0, 0.5])
    weighted = evaluate(logits, labels, weights=weights[:, None] if logits.shape == (3, 1) else weights, **options)
    assert weighted.ece_classwise == pytest.approx(evaluate(logits, labels, **options).ece_classwise)


def test_a_label_without_weight_has_no_metrics():
    scores, labels, weights = torch.randn(20, 3), torch.randint(2, (20, 3)), torch.rand(20, 3)
    weights[:, 1] = 0
    with pytest.raises(ValueError, match=r"a sum above 0 for every label, got 0 for labels \[1\]"):
        evaluate(scores, labels, task="multilabel", weights=weights)


def test_weighted_metrics_against_scikit_learn():
    logits, labels = predictions(300, 4, dtype=torch.float64)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = evaluate(logits, labels, weights=weights)
    p = logits.softmax(1).numpy()
    assert result.loss == pytest.approx(sklearn.metrics.log_loss(labels, p, sample_weight=weights), rel=1e-12)
    accuracy = sklearn.metrics.accuracy_score(labels, p.argmax(1), sample_weight=weights)
    assert result.top1_accuracy == pytest.approx(100 * accuracy, rel=1e-12)
    confidence, correct = p.max(1), p.argmax(1) == labels.numpy()
    number = numpy.ceil(confidence * 10) - 1
    w = weights.numpy()
    gaps = [abs((w * (correct - confidence))[number == each].sum()) for each in range(10)]
    assert result.ece == pytest.approx(sum(gaps) / w.sum(), rel=1e-9)
    covariance = numpy.cov(confidence, correct, aweights=w)
    expected = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert result.confidence_accuracy_correlation == pytest.approx(expected, rel=1e-9)
    assert result.weight == pytest.approx(w.sum())
    assert result.samples == 300
    z, y = binary(300)
    brier = sklearn.metrics.brier_score_loss(y, z.sigmoid(), sample_weight=weights)
    assert evaluate(z, y, task="binary", weights=weights).brier == pytest.approx(2 * brier, rel=1e-12)


def parts(values, count=3):
    size = -(-len(values) // count)
    return [values[start : start + size] for start in range(0, len(values), size)]


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_batches_merges_and_one_pass_are_the_same(name, is_weighted):
    logits, labels, options = WEIGHTED[name]()
    shape = (len(labels),) if isinstance(labels, list) else labels.shape
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(1)) if is_weighted else [None] * len(labels)
    whole = evaluate(logits, labels, **options, weights=weights if is_weighted else None)
    settings = {"metrics": whole.asked, "weighted": is_weighted, **options}
    batches, merged = Evaluation(**settings), Evaluation(**settings)
    for z, y, w in zip(parts(logits), parts(labels), parts(weights), strict=True):
        batches.update(z, y, weights=w if is_weighted else None)
        one = Evaluation(**settings)
        one.update(z, y, weights=w if is_weighted else None)
        merged.merge(one)
    for other in (batches, merged):
        same(other.compute(), whole)
        assert (other.compute().samples, other.compute().ignored) == (whole.samples, whole.ignored)
        if name == "multilabel":
            same(other.compute().per_label[1], whole.per_label[1])


def reduced(folder):
    rank = torch.distributed.get_rank()
    logits, labels = ragged()
    evaluation = Evaluation(task="multiple_choice", weighted=True, ignore_index=-1)
    evaluation.update(logits[rank::2], labels[rank::2], weights=[1.0 + rank] * 60)
    evaluation.all_reduce()
    (folder / f"{rank}.json").write_text(json.dumps(evaluation.compute().as_dict()))


@pytest.mark.slow
def test_ranks_reduce_forms_and_weights(tmp_path):
    on_ranks(2, reduced, tmp_path)
    expected = evaluate(*ragged(), task="multiple_choice", weights=[1.0, 2.0] * 60, ignore_index=-1)
    for rank in range(2):
        result = json.loads((tmp_path / f"{rank}.json").read_text())
        assert (result["samples"], result["weight"], result["classes"]) == (120, 180, 6)
        assert result["metrics"]["ece"] == pytest.approx(expected.ece)


LOGITS, LABELS = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("logits", "labels", "options", "words"),
    [
        (torch.randn(2, 3, 4), torch.zeros(2, 4).long(), {}, r"\(n, classes\), got \(2, 3, 4\); .* classes_dim=1 for"),
        (torch.randn(4), LABELS, {}, r"\(n, classes\), got \(4,\); for one score per sample: task='binary'"),
        (torch.randn(2, 3, 4), torch.zeros(2, 3).long(), {"classes_dim": 1}, r"labels \(2, 4\) for .* got \(2, 3\)"),
        (torch.randn(2, 3, 4), LABELS, {"classes_dim": 3}, r"classes in dimension 3, got \(2, 3, 4\)"),
        (torch.randn(4), LABELS, {"classes_dim": -1}, r"classes in dimension -1, got \(4,\)"),
        (LOGITS, LABELS, {"task": "binary"}, r"labels \(4, 3\), one for each score, got \(4,\)"),
        (LOGITS, LABELS, {"task": "multilabel"}, r"labels \(4, 3\), one for each score, got \(4,\)"),
        (torch.randn(4), LABELS, {"task": "binary"}, "labels from 0 to 1, got 2 in row 2"),
        (torch.randn(4), LABELS, {"task": "multilabel"}, r"\(n, labels\), got \(4,\)"),
        (torch.tensor(1.0), LABELS, {"task": "binary"}, r"logits \(n,\), got a single number"),
        (LOGITS, LABELS, {"task": "both"}, "a task among multiclass, binary, multilabel, multiple_choice, got 'both'"),
        (torch.randn(4), LABELS, {"task": "binary", "classes_dim": 1}, "no classes_dim for task 'binary', got 1"),
        (LOGITS, LABELS, {"offsets": [0, 2, 4]}, "no offsets for task 'multiclass'"),
        (LOGITS, LABELS - 1, {"ignore_index": -100}, "from 0 to 2, or -100, which is ignored, got -1 in row 0"),
        (LOGITS, LABELS, {"weights": [1.0, 1.0]}, r"a weight for each label, \(4,\), got \(2,\)"),
        (LOGITS, LABELS, {"weights": [1.0, -1.0, 1, 1]}, "finite weights of at least 0, got -1 in row 1"),
        (LOGITS, LABELS, {"weights": [1.0, math.nan, 1, 1]}, "finite weights of at least 0, got nan in row 1"),
        (LOGITS, LABELS, {"weights": [0, 0, 0, 0]}, "weights with a sum above 0, got 0"),
        (LOGITS, LABELS, {"weights": [1, 1, 1, 1], "metrics": ["aurc", "loss"]}, "aurc, which counts samples"),
        ([LOGITS[0], LOGITS[1, :2]], [0, 2], {"task": "multiple_choice"}, "labels from 0 to 1, got 2 in row 1"),
        ([LOGITS[0], LOGITS[1, :1]], [0, 0], {"task": "multiple_choice"}, "two choices in each row, got 1 in row 1"),
        ([LOGITS[0], LOGITS], [0, 0], {"task": "multiple_choice"}, r"\(choices,\) in each row, got \(4, 3\) in row 1"),
        ([LOGITS[0]], [0, 0], {"task": "multiple_choice"}, "a label for each of 1 samples, got 2"),
        ([], [], {"task": "multiple_choice"}, "at least one sample, got no logits"),
        ([LOGITS[0]], [0], {"task": "multiple_choice", "metrics": ["ece_classwise"]}, "ece_classwise, which needs the"),
        (
            LOGITS[0],
            [0],
            {"task": "multiple_choice", "offsets": [0, 2]},
            r"offsets \(n \+ 1,\) from 0 to 3.* got 0 … 2",
        ),
        (LOGITS, [0], {"task": "multiple_choice", "offsets": [0, 3]}, r"logits \(m,\) with offsets .* got \(4, 3\)"),
    ],
)
def test_other_shapes_are_refused_with_what_was_expected(logits, labels, options, words):
    with pytest.raises(ValueError, match=words):
        evaluate(logits, labels, **options)


@pytest.mark.parametrize(
    ("logits", "options", "words"),
    [
        (LOGITS, {"task": "multiple_choice"}, r"a list of arrays, or as values .* got a Tensor \(4, 3\)"),
        (LOGITS, {"classes_dim": 1.0}, "classes_dim as an integer, got 1.0"),
        (LOGITS, {"ignore_index": "no"}, "ignore_index as an integer, got 'no'"),
        (LOGITS, {"weights": [True] * 4}, "weights as real numbers, got torch.bool"),
    ],
)
def test_other_types_are_refused_with_what_was_expected(logits, options, words):
    with pytest.raises(TypeError, match=words):
        evaluate(logits, LABELS, **options)


def test_rows_of_multiple_choice_are_named_as_they_were_given():
    rows = [LOGITS[0], LOGITS[0, :2], LOGITS[1], torch.tensor([1.0, math.nan])]
    with pytest.raises(ValueError, match="got nan in row 3, class 1"):
        evaluate(rows, [0, 0, 0, 0], task="multiple_choice")
    with pytest.raises(ValueError, match=r"a sum of 0\.5 in row 1"):
        evaluate_probabilities([[0.2, 0.3, 0.5], [0.2, 0.3]], [0, 0], task="multiple_choice")


def test_evaluations_of_other_forms_are_not_mixed():
    evaluation = Evaluation(weighted=True)
    with pytest.raises(ValueError, match="expected weights with every batch of a weighted evaluation, got none"):
        evaluation.update(LOGITS, LABELS)
    with pytest.raises(ValueError, match="create the evaluation with weighted=True"):
        Evaluation().update(LOGITS, LABELS, weights=[1, 1, 1, 1])
    evaluation.update(LOGITS, LABELS, weights=[1, 1, 1, 1])
    with pytest.raises(ValueError, match="intervals of a reliability curve count samples"):
        evaluation.reliability()
    one, other = Evaluation(metrics=["ece"]), Evaluation(metrics=["ece"], task="binary")
    with pytest.raises(ValueError, match="an evaluation of task multiclass, got task binary"):
        one.merge(other)
    several = Evaluation(task="multilabel")
    several.update(torch.randn(4, 3), torch.zeros(4, 3).long())
    with pytest.raises(ValueError, match="expected 3 labels as before, got 2"):
        several.update(torch.randn(4, 2), torch.zeros(4, 2).long())


def test_sigmoids_given_as_binary_logits_are_warned_of():
    logits, labels = binary()
    with pytest.warns(calibration.InputWarning, match=r"every one of these logits lies in \[0, 1\].*log-odds"):
        evaluate(logits.sigmoid(), labels, task="binary")


def test_the_curve_of_a_multi_label_problem_is_that_of_all_decisions():
    logits, labels = binary(60)
    several, pooled = Evaluation(task="multilabel"), Evaluation(task="binary")
    several.update(logits.view(20, 3), labels.view(20, 3))
    pooled.update(logits, labels)
    torch.testing.assert_close(several.reliability().accuracy, pooled.reliability().accuracy, equal_nan=True)
    assert several.reliability().ece == pytest.approx(pooled.reliability().ece)


def test_ignored_positions_may_have_any_weight():
    logits, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, -100, 2, 1])
    weights, kept = torch.tensor([1.0, math.nan, 2.0, 0.5]), torch.tensor([0, 2, 3])
    found = evaluate(logits, labels, ignore_index=-100, weights=weights)
    assert found.loss == pytest.approx(evaluate(logits[kept], labels[kept], weights=weights[kept]).loss)
    with pytest.raises(ValueError, match="finite weights of at least 0, got nan in row 1"):
        evaluate(logits, labels.clamp_min(0), weights=weights)
