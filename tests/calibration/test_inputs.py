"""Bad input: a clear error that names what arrived, or a correct answer."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch

from orthograd import calibration
from orthograd.calibration import VectorScaling, evaluate, evaluate_probabilities
from orthograd.calibration.rows import BLOCK

LOGITS, LABELS = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]), torch.tensor([1, 2])


def broken(value):
    logits = LOGITS.clone()
    logits[1, 2] = value
    return logits


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (broken(math.nan), LABELS, r"finite logits, got nan in row 1, class 2 \(1 of 6"),
        (broken(math.inf), LABELS, "finite logits, got inf in row 1, class 2"),
        (broken(-math.inf), LABELS, "finite logits, got -inf in row 1, class 2"),
        (broken(3e38), LABELS, r"squares fit torch.float32, got one of size 3e\+38"),
        (LOGITS, torch.tensor([1, 3]), "labels from 0 to 2, got 3 in row 1"),
        (LOGITS, torch.tensor([-1, 0]), "labels from 0 to 2, got -1 in row 0"),
        (LOGITS, torch.tensor([1]), "a label for each of 2 samples, got 1"),
        (LOGITS, torch.eye(3, dtype=torch.long)[:2], r"labels \(n,\), got \(2, 3\)"),
        (LOGITS[0], LABELS, r"logits \(n, classes\), got \(3,\)"),
        (LOGITS[:0], LABELS[:0], r"at least one sample, got logits \(0, 3\)"),
        (LOGITS[:, :1], LABELS * 0, r"at least two classes, got logits \(2, 1\)"),
    ],
)
def test_values_and_shapes_that_cannot_be_evaluated_are_named(logits, labels, words):
    with pytest.raises(ValueError, match=words):
        evaluate(logits, labels)


def test_broken_logits_are_searched_in_parts(monkeypatch):
    monkeypatch.setitem(BLOCK, "cuda", 12)
    logits = torch.zeros(5, 3, 4)
    logits[1, 0, 2] = logits[3, 2, 1] = logits[3, 2, 3] = math.nan
    labels = torch.zeros(5, 3, dtype=torch.long)
    labels[1, 0] = -100
    with pytest.raises(ValueError, match=r"got nan at \(3, 2\), class 1 \(2 of 60 are not finite"):
        evaluate(logits, labels, classes_dim=-1, ignore_index=-100)


@pytest.mark.parametrize("use", [lambda *of: evaluate(*of, metrics=["ece"]), calibration.intervals])
def test_an_infinite_logit_is_refused_whatever_is_asked_for(use):
    with pytest.raises(ValueError, match="finite logits, got -inf in row 1, class 0"):
        use(torch.tensor([[0.0, 1.0, 0.5], [-math.inf, 0.0, 1.0]]), LABELS)


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (LOGITS.long(), LABELS, "logits in floating point, got torch.int64"),
        (LOGITS, LABELS.double(), "labels as integers, got torch.float64"),
        (LOGITS, LABELS.bool(), "labels as integers, got torch.bool"),
        (LOGITS.to(torch.complex64), LABELS, "floating point, got torch.complex64"),
        (LOGITS.to(torch.float8_e4m3fn), LABELS, "at least half precision, got torch.float8_e4m3fn"),
        (LOGITS.to_sparse(), LABELS, "logits as a dense tensor, got torch.sparse_coo"),
        (LOGITS, LABELS.to_sparse(), "labels as a dense tensor, got torch.sparse_coo"),
        (np.ma.masked_less(LOGITS.numpy(), 0), LABELS, "logits without a mask, got a MaskedArray"),
        (LOGITS, np.ma.array(LABELS.numpy(), mask=[True, False]), "labels without a mask, got a MaskedArray"),
    ],
)
def test_kinds_that_cannot_be_evaluated_are_named(logits, labels, words):
    with pytest.raises(TypeError, match=words):
        evaluate(logits, labels)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0.5, 0.4, 0.0], "sum to 1, got a sum of 0.9 in row 1; if they were rounded"),
        ([0.5, 0.6, -0.1], "from 0 to 1, got -0.1 in row 1"),
        ([math.nan, 0.5, 0.5], "from 0 to 1, got nan in row 1"),
        ([2.0, 3.0, 1.0], "from 0 to 1, got 2 in row 1"),
        ([1.000002, 0.0, 0.0], "from 0 to 1, got 1.000002 in row 1"),
    ],
)
def test_probabilities_that_are_none_are_named(row, words):
    with pytest.raises(ValueError, match=words):
        evaluate_probabilities(torch.tensor([[0.2, 0.3, 0.5], row]), LABELS)
    rounded = [1 + 5e-7, -5e-7, 0.0]  # is forgiven, so it is not what is wrong
    with pytest.raises(ValueError, match=words):
        evaluate_probabilities(torch.tensor([rounded, row], dtype=torch.float64), LABELS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_past_their_limits_by_rounding_count_as_the_limit(dtype):
    eps = max(1e-7, torch.finfo(dtype).eps)
    rounded = torch.tensor([[1 + eps, 0, 0], [0, 0.5, 0.5]], dtype=dtype)
    rounded[0, 1] = -min(eps, 1e-6)
    exact = torch.tensor([[1, 0, 0], [0, 0.5, 0.5]], dtype=dtype)
    assert evaluate_probabilities(rounded, LABELS) == evaluate_probabilities(exact, LABELS)
    assert float(rounded[0, 0]) > 1, "the caller's own numbers stay as they are"


@pytest.mark.parametrize("row", [[1.0001, 0.0, 0.0], [1.0, 0.0, -1e-4], [1.0, 0.002, 0.0]])
def test_probabilities_past_their_limits_by_more_than_rounding_are_refused(row):
    with pytest.raises(ValueError, match="expected probabilities"):
        evaluate_probabilities(torch.tensor([row]), [0])


def test_numpy_arrays_lists_and_narrow_labels_are_welcome():
    expected = evaluate(LOGITS, LABELS)
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64, ">i4"):
        assert evaluate(LOGITS.numpy(), LABELS.numpy().astype(kind)) == expected
    assert evaluate(LOGITS.numpy().astype(">f4"), LABELS) == expected
    for kind in (torch.uint16, torch.uint32, torch.uint64):
        assert evaluate(LOGITS, LABELS.to(kind)) == expected
    assert evaluate(LOGITS.tolist(), LABELS.tolist()) == expected
    assert evaluate(LOGITS.requires_grad_(), LABELS.int()) == expected
    assert evaluate(LOGITS.detach().t().contiguous().t(), LABELS) == expected


def test_one_sample():
    found = evaluate(torch.tensor([[0.0, math.log(3)]], dtype=torch.float64), torch.tensor([1]))
    assert found.ece == pytest.approx(0.25)
    assert found.top1_accuracy == 100
    assert found.confidence_accuracy_correlation is None
    assert found.ece_by_chance == pytest.approx(2 * 0.75 * 0.25)  # off by 0.25 three times in four, else by 0.75


@pytest.mark.parametrize("right", [True, False])
def test_all_right_and_all_wrong_at_a_confidence_of_one(right):
    probabilities = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1]) if right else torch.tensor([1, 0])
    found = evaluate_probabilities(probabilities, labels)
    assert found.top1_accuracy == (100 if right else 0)
    assert found.loss == (0 if right else math.inf)
    assert found.brier == (0 if right else 2)
    assert found.ece == found.mce == found.ece_equal_mass == found.aurc == (0 if right else 1)
    assert found.smooth_ece == pytest.approx(0 if right else 1, abs=1e-9)
    assert found.entropy == found.ece_by_chance == 0
    assert found.confidence_accuracy_correlation is None


def test_all_scores_equal():
    found = evaluate(torch.zeros(4, 4), torch.arange(4))
    assert found.top1_accuracy == 25
    assert found.ece == pytest.approx(0)
    assert found.entropy == pytest.approx(math.log(4))
    assert found.logit_variance == 0


def test_huge_but_finite_logits():
    found = evaluate(torch.tensor([[1e30, 0.0], [0.0, 1e30]], dtype=torch.float64), torch.tensor([0, 0]))
    assert found.loss == pytest.approx(5e29)
    assert found.max_softmax == 1


@pytest.mark.parametrize(
    ("value", "bins", "expected"),
    [(0.0, 10, 0), (0.1, 10, 0), (0.3, 10, 2), (0.55, 20, 10), (0.9, 10, 8), (0.900001, 10, 9), (1.0, 10, 9)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(value, bins, expected, dtype):
    assert int(calibration.binned.bin_of(torch.tensor([value], dtype=dtype), bins)) == expected


def test_unknown_metrics_and_impossible_bins_are_named():
    with pytest.raises(ValueError, match="got accuracy"):
        evaluate(LOGITS, LABELS, metrics=["accuracy"])
    with pytest.raises(TypeError, match="single string 'ece'"):
        evaluate(LOGITS, LABELS, metrics="ece")
    with pytest.raises(ValueError, match="at least one bin, got 0"):
        evaluate(LOGITS, LABELS, bins=0)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, -100], r"got -100 in row 1; to leave out positions with this label: ignore_index=-100"),
        ([1, 255], r"got 255 in row 1; to leave out .*: ignore_index=255"),
        ([1, 3], r"got 3 in row 1; labels count from 0: subtract 1"),
        ([0, 3], r"got 3 in row 1$"),
        ([1.0, 2.0], r"as integers, got torch\.float32; convert whole numbers, as by \.astype\(int\)"),
        ([1.0, float("nan")], r"as integers, got torch\.float32 with NaN: drop these samples, or replace NaN by"),
        ([[0, 1, 0], [0, 0, 1]], r"labels \(n,\), got \(2, 3\); of one-hot labels take \.argmax\(1\)"),
    ],
)
def test_what_helps_with_usual_labels_of_another_kind_is_said(labels, words):
    with pytest.raises((TypeError, ValueError), match=words):
        evaluate(LOGITS, torch.tensor(labels))


def test_a_fitted_calibrator_says_how_to_convert_an_array():
    scaling = calibration.TemperatureScaling().fit(torch.tensor([[2.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]))
    with pytest.raises(
        TypeError, match=r"as a tensor in floating point, got ndarray: convert them by torch\.as_tensor"
    ):
        scaling(np.zeros((2, 2)))


def test_results_print_convert_and_explain_themselves():
    found = evaluate(LOGITS, LABELS)
    text = str(found)
    assert "2 samples, 3 classes, 10 bins" in text
    assert "100.00%" in text
    assert set(found.as_row()) == set(calibration.ALL) == set(found.conventions)
    assert found.as_row()["loss"] == found.loss
    assert "10 bins of equal width" in found.conventions["ece"]
    assert "15 bins" in evaluate(LOGITS, LABELS, bins=15).conventions["ece"]
    written = json.dumps(found.as_dict(), allow_nan=False)
    assert json.loads(written)["metrics"]["brier"] == found.brier
    infinite = evaluate_probabilities(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert json.loads(json.dumps(infinite.as_dict(), allow_nan=False))["metrics"]["loss"] == "inf"
    assert infinite.formatted("max_logit") == "needs logits"
    assert infinite.formatted("confidence_accuracy_correlation") == "undefined"


def test_labels_too_large_for_int64_are_named_as_they_came():
    with pytest.raises(ValueError, match="labels from 0 to 2, got 18446744073709551615 in row 1"):
        evaluate(LOGITS, np.array([0, 2**64 - 1], dtype=np.uint64))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_and_series_are_taken_by_position(library):
    frames = pytest.importorskip(library)
    logits, columns = LOGITS.detach().numpy(), ["class_0", "class_1", "class_2"]
    table = frames.DataFrame({**dict(zip(columns, logits.T, strict=True)), "label": LABELS.numpy()})
    assert evaluate(table[columns], table["label"]) == evaluate(LOGITS, LABELS)
    assert evaluate(logits=table[columns], labels=table["label"]) == evaluate(LOGITS, LABELS)
    fitted = VectorScaling().fit(table[columns], table["label"])
    assert fitted.weight.equal(VectorScaling().fit(LOGITS, LABELS).weight)
    named = frames.DataFrame(dict(zip("cab", logits.T, strict=True)))
    assert evaluate(named, table["label"]) == evaluate(LOGITS, LABELS)
    p = LOGITS.detach().softmax(1).numpy()
    probabilities = frames.DataFrame(dict(zip("abc", p.T, strict=True)))
    assert evaluate_probabilities(probabilities, table["label"]) == evaluate_probabilities(p, LABELS)
    with pytest.raises(ValueError, match=r"order of the classes, got class_1, class_0, class_2: select"):
        evaluate(table[["class_1", "class_0", "class_2"]], LABELS)
    with pytest.raises(ValueError, match=r"labels \(n,\), got \(2, 1\)"):
        evaluate(LOGITS, table[["label"]])
    with pytest.raises(TypeError, match="labels as numbers, got "):
        evaluate(LOGITS, frames.Series(["cat", "dog"]))
    with pytest.raises(ValueError, match="finite logits, got nan in row 0, class 1"):
        evaluate(frames.DataFrame({"a": [1.0, 2.0], "b": [None, 1.0]}), LABELS.clamp_max(1))


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_columns_of_pandas_that_allow_missing_values_are_numbers(backend):
    pandas = pytest.importorskip("pandas")
    if backend == "pyarrow":
        pytest.importorskip("pyarrow")
    logits, labels = LOGITS.detach().double().numpy(), LABELS.numpy()
    frame = pandas.DataFrame(logits, columns=list("abc")).assign(label=labels, hit=labels == 1)
    frame = frame.convert_dtypes(dtype_backend=backend)  # also makes integers of whole numbers
    assert frame[["a", "b", "c"]].to_numpy().dtype == object
    assert evaluate(frame[["a", "b", "c"]], frame["label"]) == evaluate(logits, labels)
    several = evaluate(logits[:, 2:], (labels == 1)[:, None], task="multilabel")
    assert evaluate(frame[["c"]], frame[["hit"]], task="multilabel").loss == several.loss
    frame.loc[0, ["a", "label"]] = None
    with pytest.raises(ValueError, match="expected labels without missing values, got 1 missing"):
        evaluate(logits, frame["label"])
    with pytest.raises(ValueError, match="finite logits, got nan in row 0, class 0"):
        evaluate(frame[["a", "b", "c"]], labels)
    with pytest.raises(TypeError, match="expected logits as numbers, got the column 'a' of str"):
        evaluate(frame.assign(a=["x", "y"])[["a", "b", "c"]], labels)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_missing_labels_are_named_as_such(library):
    frames = pytest.importorskip(library)
    for values, dtype in (([0, None], "Int64"), ([True, None], {"pandas": "boolean", "polars": "Boolean"}[library])):
        dtype = dtype if library == "pandas" else getattr(frames, dtype)
        labels = (
            frames.Series("label", values, dtype=dtype) if library == "polars" else frames.Series(values, dtype=dtype)
        )
        with pytest.raises(ValueError, match="expected labels without missing values, got 1 missing"):
            evaluate(LOGITS[:, 0], labels, task="binary")
    labels = frames.DataFrame({"a": labels, "b": labels})
    with pytest.raises(ValueError, match="expected labels without missing values, got 2 missing"):
        evaluate(LOGITS[:, :2], labels, task="multilabel")


def test_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(LOGITS.detach().numpy(), columns=["a", "b", "b"])
    for each in (frame, frame.convert_dtypes()):
        with pytest.raises(ValueError, match="expected logits with column names that differ, got 'b' twice"):
            evaluate(each, LABELS)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_labels_and_weights_are_no_columns_of_the_scores(library):
    frames = pytest.importorskip(library)
    table = frames.DataFrame({"a": [2.0, 0.0], "b": [0.0, 1.0], "label": [0, 1], "weight": [1.0, 2.0]})
    refused = r"expected logits without the column of the labels, got it as 'label': select the columns of the classes"
    for labels in (table["label"], table["label"] * 2):
        with pytest.raises(ValueError, match=refused):
            evaluate(table, labels)
    with pytest.raises(ValueError, match=refused):
        VectorScaling().fit(table, table["label"])
    with pytest.raises(ValueError, match="probabilities without the column of the weights, got it as 'weight'"):
        evaluate_probabilities(table[["a", "b", "weight"]], table["label"], weights=table["weight"])
    scores = table[["a", "b"]]
    assert evaluate(scores, table["label"]) == evaluate(torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), [0, 1])
    scores = frames.DataFrame({"a": [2.0, 0.0], "name": [0.0, 1.0]})
    truth = frames.DataFrame({"a": [0, 1], "name": [1, 1]})  # the labels of a multi-label problem
    assert evaluate(scores, truth, task="multilabel").samples == 4


def test_columns_numbered_by_pandas_are_compared_by_their_values():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({0: [2.0, 0.0], 1: [0.0, 1.0], 2: [0, 1]})
    with pytest.raises(ValueError, match="logits without the column of the labels, got it as '2'"):
        evaluate(table, table[2])
    labels = pandas.DataFrame([0, 1])[0]
    assert evaluate(table[[0, 1]], labels) == evaluate(table[[0, 1]], [0, 1])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_fitted_calibrators_take_frames(library):
    frames = pytest.importorskip(library)
    logits, labels = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(40) % 3
    frame = frames.DataFrame(dict(zip("abc", logits.numpy().T, strict=True)))
    scaling = VectorScaling().fit(frame, frames.Series(labels.numpy()))
    assert scaling(frame).equal(scaling(logits))
    assert scaling.probabilities(frame).equal(scaling.probabilities(logits))
    with pytest.raises(TypeError, match=r"tensor in floating point, got list: convert them by torch\.as"):
        scaling(logits.tolist())


def test_the_index_of_a_series_is_ignored():
    pandas = pytest.importorskip("pandas")
    for index in ([0, 1], [1, 0], [7, 8], ["a", "b"]):
        assert evaluate(LOGITS, pandas.Series(LABELS.numpy(), index=index)) == evaluate(LOGITS, LABELS)


def test_numbers_in_names_of_columns_count_as_numbers():
    pandas = pytest.importorskip("pandas")
    logits, labels = torch.randn(20, 11), torch.arange(20) % 11
    frame = pandas.DataFrame(logits.numpy())
    assert evaluate(frame, labels) == evaluate(logits, labels)
    assert evaluate(frame.add_prefix("p"), labels) == evaluate(logits, labels)
    as_text = sorted(frame.add_prefix("p").columns)
    with pytest.raises(ValueError, match="got p0, p1, p10, p2"):
        evaluate(frame.add_prefix("p")[as_text], labels)


def test_frames_that_are_not_in_memory_are_named():
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match=r"got a Table: call \.collect\(\).*\.to_pandas\(\)"):
        evaluate(arrow.table({"a": [1.0, 2.0], "b": [0.0, 1.0]}), LABELS.clamp_max(1))
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"got a LazyFrame: call \.collect\(\)"):
        evaluate(polars.LazyFrame({"a": [1.0, 2.0], "b": [0.0, 1.0]}), LABELS.clamp_max(1))


@pytest.mark.parametrize("values", ["logits", ["a", "b"], [[1.0, 2.0], [1.0]], None, {"a": 1}, object()])
def test_what_is_no_array_is_refused_by_its_type(values):
    with pytest.raises(TypeError, match="expected logits as numbers"):
        evaluate(values, LABELS)


@pytest.mark.parametrize("bins", [10.0, "10", None, True, 0, -3, 1001, 10**9, math.nan])
def test_bins_are_a_whole_number_within_bounds(bins):
    kind = ValueError if type(bins) is int else TypeError
    refused = pytest.raises(kind, match=rf"expected (bins as a|at least one|at most 1000).*got {bins!r}")
    for evaluated in (evaluate, calibration.intervals):
        with refused:
            evaluated(LOGITS, LABELS, bins=bins)
    with refused:
        calibration.HistogramBinning(bins=bins)


def test_bins_may_be_numpys():
    assert evaluate(LOGITS, LABELS, bins=np.int64(15)) == evaluate(LOGITS, LABELS, bins=15)


def added(logits, labels):
    calibration.Evaluation().update(logits, labels)


@pytest.mark.parametrize(
    "use",
    [
        evaluate,
        added,
        lambda logits, labels: calibration.intervals(logits, labels, resamples=20),
        lambda logits, labels: calibration.TemperatureScaling().fit(logits, labels),
        lambda logits, labels: calibration.VectorScaling().fit(logits, labels),
        lambda logits, labels: calibration.fit_temperatures(logits[None], labels),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_given_as_logits_are_warned_of_where_they_are_given(use, dtype):
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 3, generator=generator), torch.randint(3, (50,), generator=generator)
    with pytest.warns(calibration.InputWarning, match=r"every row .* lies in \[0, 1\] and sums to 1") as caught:
        use(logits.softmax(1).to(dtype), labels)
    (told,) = [warning for warning in caught if warning.category is calibration.InputWarning]
    assert told.filename == __file__


def test_padding_does_not_hide_that_logits_are_probabilities():
    probabilities = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
    labels = torch.arange(20).view(4, 5) % 3
    labels[:, :2], probabilities[:, :2] = -100, 0
    with pytest.warns(calibration.InputWarning):
        evaluate(probabilities, labels, classes_dim=-1, ignore_index=-100)
    labels[:, 2] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(9 * probabilities, labels, classes_dim=-1, ignore_index=-100)
        calibration.Evaluation(ignore_index=-100).update(probabilities[:, 3], torch.full((4,), -100))


@pytest.mark.filterwarnings("error::orthograd.calibration.InputWarning")
def test_logits_are_not_warned_of():
    probabilities = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    evaluate_probabilities(probabilities, [0, 1])
    evaluate(probabilities.log(), [0, 1])
    evaluate(torch.cat([probabilities, torch.tensor([[0.5, 0.6]])]), [0, 1, 1])
    evaluate(torch.zeros(3, 2), [0, 1, 1])
