"""The same on a GPU. Skips without one."""

from __future__ import annotations

import pytest
import torch

from orthograd import calibration
from orthograd.calibration import Evaluation
from tests.calibration.samples import predictions
from tests.calibration.test_forms import WEIGHTED

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

CALIBRATORS = (
    calibration.TemperatureScaling,
    calibration.EnsembleTemperatureScaling,
    calibration.BiasCorrectedTemperatureScaling,
    calibration.VectorScaling,
    calibration.MatrixScaling,
    calibration.DirichletCalibration,
    calibration.StructuredMatrixScaling,
    calibration.PlattScaling,
    calibration.IsotonicCalibration,
    calibration.HistogramBinning,
)


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_gpu_evaluates_as_the_cpu_does(classes, dtype):
    logits, labels = predictions(classes=classes, dtype=dtype)
    expected = calibration.evaluate(logits, labels).as_row()
    found = calibration.evaluate(logits.cuda(), labels.cuda()).as_row()
    # In float32 a confidence may land on the other side of an edge.
    tolerance = 1e-9 if dtype == torch.float64 else 2e-3
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("classes", [10, 100])
def test_batches_on_a_gpu_count_as_one_pass_bit_for_bit(size, classes):
    n = {1: 60, 7: 301}.get(size, 30001)
    logits, labels = (values.cuda() for values in predictions(n, classes, dtype=torch.float32))
    whole, batches = Evaluation(), Evaluation()
    whole.update(logits, labels)
    for z, y in zip(logits.split(size), labels.split(size), strict=True):
        batches.update(z, y)
    for name in ("count", "in_top_k", "class_count", "class_hits"):
        assert batches._sums[name].equal(whole._sums[name]), name


def test_evaluations_of_several_devices_merge():
    logits, labels = predictions(400)
    here, there = Evaluation(), Evaluation()
    here.update(logits[:100], labels[:100])
    there.update(logits[100:].cuda(), labels[100:].cuda())
    here.merge(there)
    here.update(logits.cuda(), labels.cuda())
    assert here.samples == 800
    assert here.compute().loss == pytest.approx(calibration.evaluate(logits, labels).loss)


@pytest.mark.parametrize("kind", CALIBRATORS, ids=lambda kind: kind.__name__)
def test_calibrators_fit_and_move(kind):
    logits, labels = predictions(600, dtype=torch.float32)
    here, there = kind().fit(logits, labels), kind().fit(logits.cuda(), labels.cuda())
    torch.testing.assert_close(there(logits.cuda()).cpu(), here(logits), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(here.cuda()(logits.cuda()), there(logits.cuda()), rtol=1e-3, atol=1e-4)


def test_intervals_do_not_care_where_the_logits_are():
    logits, labels = predictions(300)
    for name, ends in calibration.intervals(logits, labels, resamples=100).items():
        found = calibration.intervals(logits.cuda(), labels.cuda(), resamples=100)[name]
        assert found == pytest.approx(ends, rel=1e-6), name


def on_gpu(values):
    return [row.cuda() for row in values] if isinstance(values, list) else values.cuda()


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_every_form_is_evaluated_and_calibrated_as_on_the_cpu(name, is_weighted):
    logits, labels, options = WEIGHTED[name]()
    shape = (len(labels),) if isinstance(labels, list) else labels.shape
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(1)) if is_weighted else None
    expected = calibration.evaluate(logits, labels, weights=weights, **options).as_row()
    found = calibration.evaluate(on_gpu(logits), labels, weights=weights, **options).as_row()
    for metric, value in expected.items():
        assert found[metric] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), metric
    form = {key: value for key, value in options.items() if key != "ignore_index"}
    for calibrator in CALIBRATORS[:1] if name == "multiple_choice" else CALIBRATORS:
        settings = {"weights": weights, "ignore_index": options.get("ignore_index")}
        here = calibrator(**form).fit(logits, labels, **settings)(logits)
        there = calibrator(**form).cuda().fit(on_gpu(logits), labels, **settings)(on_gpu(logits))
        for left, right in zip(here, there, strict=True):
            torch.testing.assert_close(left, right.cpu(), rtol=1e-4, atol=1e-4)
