"""Calibration and refinement apart, and selective prediction at one point of the curve."""

from __future__ import annotations

import json

import numpy
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional

from orthograd import calibration
from orthograd.calibration import TemperatureScaling, VectorScaling, cross_fit, decomposition
from tests.calibration.samples import predictions
from tests.calibration.test_forms import binary, dense, padded, ragged


def test_the_refinement_is_the_loss_after_cross_fitted_temperatures():
    logits, labels = predictions(300, 4, dtype=torch.float64)
    result = decomposition(3 * logits, labels, folds=4, seed=5)
    numbers = cross_fit(TemperatureScaling(), logits, labels, folds=4, seed=5).fold
    loss = brier = 0.0
    for number in range(4):
        rest, fold = numbers != number, numbers == number
        best = minimize_scalar(
            lambda beta, rest=rest: float(functional.cross_entropy(beta * 3 * logits[rest], labels[rest])),
            bounds=(1e-3, 10),
            method="bounded",
            options={"xatol": 1e-10},
        )
        scaled = best.x * 3 * logits[fold]
        loss += float(functional.cross_entropy(scaled, labels[fold], reduction="sum")) / 300
        brier += float((scaled.softmax(1) - functional.one_hot(labels[fold], 4)).square().sum()) / 300
    assert result.loss_refinement == pytest.approx(loss, rel=1e-7)
    assert result.brier_refinement == pytest.approx(brier, rel=1e-6)
    whole = calibration.evaluate(3 * logits, labels, metrics=["loss", "brier"])
    assert (result.loss, result.brier) == (whole.loss, whole.brier)
    assert result.loss == pytest.approx(result.loss_refinement + result.loss_calibration)
    assert result.brier == pytest.approx(result.brier_refinement + result.brier_calibration)
    assert json.loads(json.dumps(result.as_dict()))["loss_calibration"] == result.loss_calibration
    assert f"refinement {result.loss_refinement:.4f} + calibration" in str(result)
    assert (result.calibrator, result.folds) == ("TemperatureScaling", 4)


def test_calibrated_predictions_have_no_calibration_error():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    result = decomposition(logits, labels)
    assert abs(result.loss_calibration) < 1e-3
    assert abs(result.brier_calibration) < 1e-3
    shifted = logits + torch.tensor([0.0, 1.0, 0.0])
    by_vector = decomposition(shifted, labels, calibrator=VectorScaling)
    assert by_vector.loss_refinement == pytest.approx(result.loss_refinement, abs=2e-3)
    assert decomposition(shifted, labels).loss_refinement > result.loss_refinement + 0.02


FORMS = {
    "dense": lambda: (
        dense((12, 5, 4, 6))[0],
        padded(dense((12, 5, 4, 6))[1]),
        {"classes_dim": 1, "ignore_index": -100},
    ),
    "binary": lambda: (*binary(), {"task": "binary", "weights": torch.arange(400) % 3}),
    "multilabel": lambda: (*(part.view(100, 4) for part in binary()), {"task": "multilabel"}),
    "maps": lambda: (*(part.view(10, 4, 10) for part in binary()), {"task": "multilabel", "classes_dim": 1}),
    "multiple_choice": lambda: (*ragged(), {"task": "multiple_choice"}),
}


@pytest.mark.filterwarnings("ignore::orthograd.calibration.CalibrationWarning")
@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_separated(name):
    logits, labels, options = FORMS[name]()
    result = decomposition(logits, labels, **options)
    metrics = calibration.evaluate(logits, labels, metrics=["loss", "brier"], **options)
    assert result.loss == pytest.approx(metrics.loss)
    doubled = [2 * row for row in logits] if isinstance(logits, list) else 2 * logits
    assert decomposition(doubled, labels, **options).loss_refinement == pytest.approx(result.loss_refinement, rel=1e-6)


def test_folds_that_cannot_be_are_refused():
    logits, labels = predictions(4, 3)
    with pytest.raises(ValueError, match="one sample for each of 5 folds, got 4"):
        decomposition(logits, labels)
    with pytest.raises(ValueError, match="at least 2 folds, got 1"):
        decomposition(logits, labels, folds=1)
    with pytest.raises(ValueError, match=r"logits \(n, classes\), got \(4, 3, 1\)"):
        decomposition(logits[..., None], labels)


def selective(n=200):
    generator = torch.Generator().manual_seed(0)
    confidence = (torch.rand(n, generator=generator, dtype=torch.float64) * 50).round() / 50  # with ties
    return confidence, torch.rand(n, generator=generator) < confidence


def test_the_generalized_risk_against_its_definition():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(200, generator=generator, dtype=torch.float64)
    correct = torch.rand(200, generator=generator) < confidence
    order = confidence.argsort(descending=True)
    accepted_errors = numpy.cumsum(~correct[order].numpy())
    assert float(calibration.augrc(confidence, correct)) == pytest.approx((accepted_errors / 200).mean(), rel=1e-12)
    # The trapezoidal rule over the points (coverage, generalized risk), from (0, 0) on.
    risk = numpy.r_[0, accepted_errors] / 200
    area = (risk[1:] + risk[:-1]).sum() / 2 / 200
    error = float((~correct).double().mean())
    assert float(calibration.augrc(confidence, correct)) == pytest.approx(area + error / 400, rel=1e-12)


def test_the_generalized_risk_does_not_depend_on_the_order_of_ties():
    confidence, correct = selective()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    assert float(calibration.augrc(confidence[order], correct[order])) == pytest.approx(
        float(calibration.augrc(confidence, correct)), rel=1e-12
    )


def test_points_of_the_risk_coverage_curve():
    confidence, correct = selective()
    coverage, risk = calibration.risk_coverage(confidence, correct)
    for share, number in ((0.005, 1), (0.07, 14), (0.071, 15), (0.5, 100), (1.0, 200)):
        assert calibration.risk_at_coverage(confidence, correct, share) == risk[number - 1]
        assert float(coverage[number - 1]) == pytest.approx(number / 200)
    accuracy, share = calibration.accuracy_at_confidence(confidence, correct, 0.8)
    accepted = confidence.numpy() >= 0.8
    assert float(accuracy) == pytest.approx(correct.numpy()[accepted].mean())
    assert float(share) == pytest.approx(accepted.mean())
    assert calibration.accuracy_at_confidence([0.5], torch.tensor([True]), 0.9)[0].isnan()
    for wrong in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="a coverage above 0 and at most 1"):
            calibration.risk_at_coverage(confidence, correct, wrong)
    with pytest.raises(ValueError, match="a confidence from 0 to 1 as threshold, got 80"):
        calibration.accuracy_at_confidence(confidence, correct, 80)
