"""Calibrators on every form of logits: the fit of the rows, in the shape that was given."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression
from torch.nn import functional

from orthograd.calibration import (
    BiasCorrectedTemperatureScaling,
    CalibrationWarning,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from tests.calibration.samples import predictions
from tests.calibration.test_forms import binary, dense, padded, ragged

EVERY = [
    TemperatureScaling,
    EnsembleTemperatureScaling,
    BiasCorrectedTemperatureScaling,
    VectorScaling,
    MatrixScaling,
    DirichletCalibration,
    StructuredMatrixScaling,
    PlattScaling,
    HistogramBinning,
    IsotonicCalibration,
]
FIXED = EVERY[1:]


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("calibrator", EVERY)
def test_dense_logits_are_calibrated_as_rows_in_their_shape(calibrator):
    logits, labels = dense()
    labels = padded(labels)
    rows, truth = logits.movedim(1, -1).reshape(-1, 5), labels.flatten()
    by_rows = calibrator().fit(rows[truth != -100], truth[truth != -100])
    expected = by_rows(rows).view(3, 4, 6, 5)
    fitted = calibrator(classes_dim=1).fit(logits, labels, ignore_index=-100)
    close(fitted(logits), expected.movedim(-1, 1))
    close(fitted.probabilities(logits).sum(1), torch.ones(3, 4, 6, dtype=torch.float64))
    tokens = calibrator(classes_dim=-1).fit(logits.movedim(1, -1), labels, ignore_index=-100)
    close(tokens(logits.movedim(1, -1)), expected)
    assert fitted(logits.half()).dtype == torch.half
    reloaded = calibrator(classes_dim=1)
    reloaded.load_state_dict(fitted.state_dict())
    close(reloaded(logits), expected.movedim(-1, 1))


@pytest.mark.parametrize("calibrator", EVERY)
def test_binary_logits_are_those_of_two_classes(calibrator):
    logits, labels = binary()
    pair = torch.stack([torch.zeros_like(logits), logits], 1)
    fitted, of_two = calibrator(task="binary").fit(logits, labels), calibrator().fit(pair, labels)
    close(fitted.probabilities(logits), of_two.probabilities(pair)[:, 1])
    assert fitted(logits.view(20, 20)).shape == (20, 20)


def test_binary_platt_and_isotonic_are_those_of_scikit_learn():
    logits, labels = binary()
    weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slope, intercept = _sigmoid_calibration(logits.numpy(), labels.numpy(), sample_weight=weights.numpy())
    platt = PlattScaling(task="binary").fit(logits, labels, weights=weights)
    torch.testing.assert_close(platt(logits), -(slope * logits + intercept), rtol=1e-3, atol=1e-3)
    p = logits.sigmoid()
    expected = IsotonicRegression(out_of_bounds="clip").fit(p, labels, sample_weight=weights).predict(p)
    isotonic = IsotonicCalibration(task="binary").fit(logits, labels, weights=weights)
    torch.testing.assert_close(isotonic.probabilities(logits), torch.tensor(expected), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("calibrator", EVERY)
def test_each_label_has_its_own_calibrator(calibrator):
    logits, labels = (part.view(100, 4) for part in binary())
    labels = padded(labels, -1)
    fitted = calibrator(task="multilabel").fit(logits, labels, ignore_index=-1)
    for label in range(4):
        one = calibrator(task="binary").fit(logits[:, label], labels[:, label], ignore_index=-1)
        close(fitted(logits)[:, label], one(logits[:, label]))
    reloaded = calibrator(task="multilabel", classes_dim=1)
    reloaded.load_state_dict(fitted.state_dict())
    assert reloaded.probabilities(logits.view(50, 2, 4).movedim(-1, 1)).shape == (50, 4, 2)
    with pytest.raises(ValueError, match="logits of 4 labels, as in fit, got"):
        fitted(logits[:, :3])


def test_the_certificate_of_several_labels_has_one_value_each():
    logits, labels = (part.view(100, 4) for part in binary())
    fitted = TemperatureScaling(task="multilabel").fit(logits, labels)
    assert fitted.certificate.temperature.shape == fitted.temperature.shape == (4,)
    labels[:, 2] = (logits[:, 2] > 0).long()
    with pytest.warns(CalibrationWarning, match="label 2: T = .* keeps falling as T → 0"):
        TemperatureScaling(task="multilabel").fit(logits, labels)


@pytest.mark.parametrize("weights", [None, [0.5, 0.0, 2.0] * 40])
def test_the_temperature_of_multiple_choice_minimizes_the_loss(weights):
    logits, _ = ragged()
    generator = torch.Generator().manual_seed(3)
    labels = [int(torch.multinomial((row / 3).softmax(0), 1, generator=generator)) for row in logits]

    def loss(beta):
        each = [functional.cross_entropy(beta * row, torch.tensor(y)) for row, y in zip(logits, labels, strict=True)]
        return float((torch.stack(each) * torch.tensor(weights or [1.0] * 120, dtype=torch.float64)).sum())

    best = minimize_scalar(loss, bounds=(1e-3, 10), method="bounded", options={"xatol": 1e-10})
    scaling = TemperatureScaling(task="multiple_choice").fit(logits, labels, weights=weights)
    assert float(scaling.temperature) == pytest.approx(1 / best.x, rel=1e-5)
    assert float(scaling.certificate.excess) < 1e-15
    calibrated = scaling(logits)
    assert [len(row) for row in calibrated] == [len(row) for row in logits]
    close(calibrated[5], logits[5] / scaling.temperature)
    offsets = torch.tensor([0, *map(len, logits)]).cumsum(0)
    flat = TemperatureScaling(task="multiple_choice").fit(torch.cat(logits), labels, offsets=offsets, weights=weights)
    close(flat(torch.cat(logits), offsets), torch.cat(calibrated))
    close(flat.probabilities(torch.cat(logits), offsets), torch.cat(scaling.probabilities(logits)))
    close(scaling.probabilities(logits)[5], (logits[5] / scaling.temperature).softmax(0))


def test_many_rows_of_multiple_choice_start_from_a_share_of_them():
    logits, labels = predictions(9000, 4, dtype=torch.float64)
    rows = [row[: 3 + index % 2] for index, row in enumerate(logits)]
    truth = [min(int(label), len(row) - 1) for row, label in zip(rows, labels, strict=True)]
    scaling = TemperatureScaling(task="multiple_choice").fit(rows, truth)
    assert abs(float(scaling.certificate.gradient)) < 1e-9


@pytest.mark.parametrize("calibrator", FIXED)
def test_calibrators_of_classes_refuse_multiple_choice(calibrator):
    with pytest.raises(ValueError, match=f"{calibrator.__name__} does not support it; use Temperature"):
        calibrator(task="multiple_choice")


@pytest.mark.parametrize("classes", [2, 4, 30])
@pytest.mark.parametrize("calibrator", EVERY)
def test_whole_weights_are_repetitions(calibrator, classes):
    logits, labels = predictions(80, classes, dtype=torch.float64)
    counts = torch.randint(4, (80,), generator=torch.Generator().manual_seed(1))
    weighted = calibrator().fit(logits, labels, weights=counts)
    repeated = calibrator().fit(logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts))
    fitted = logits[counts > 0]  # between them, the edges of bins differ
    torch.testing.assert_close(weighted(fitted), repeated(fitted), rtol=1e-4, atol=1e-4)


def test_samples_that_do_not_count_leave_nothing_to_fit():
    logits, labels = predictions(10, 3)
    for options in ({"weights": torch.zeros(10)}, {"ignore_index": 1}):
        with pytest.raises(ValueError, match="at least one sample to fit that is not ignored and has a weight above"):
            TemperatureScaling().fit(logits, labels * 0 + 1, **options)


@pytest.mark.parametrize("calibrator", EVERY)
def test_other_shapes_are_refused_when_calibrating(calibrator):
    logits, labels = predictions(40, 3)
    fitted = calibrator().fit(logits, labels)
    with pytest.raises(ValueError, match=r"\(n, classes\), got \(2, 20, 3\); for more dimensions: classes_dim=1"):
        fitted(logits.view(2, 20, 3))
    with pytest.raises(ValueError, match="no offsets for task 'multiclass'"):
        fitted(logits, torch.tensor([0, 40]))
