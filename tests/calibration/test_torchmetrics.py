"""`CalibrationMetrics` equals `evaluate`: in one process, over ranks, and where Lightning logs it."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("torchmetrics")

from torchmetrics import MetricCollection

from orthograd import calibration
from orthograd.calibration import Evaluation, evaluate, evaluate_probabilities
from orthograd.calibration.torchmetrics import CalibrationMetrics
from tests.calibration.samples import predictions
from tests.distributed.ranks import on_ranks


def plain(values):
    return {name: None if value.isnan() else float(value) for name, value in values.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("metrics", [calibration.ALL, calibration.STREAMING, ("ece",), ("brier_resolution", "aurc")])
def test_one_batch_equals_evaluate_to_the_last_digit(metrics, dtype):
    logits, labels = predictions(500)
    logits = logits.to(dtype)
    metric = CalibrationMetrics(10, bins=7, metrics=metrics)
    metric.update(logits, labels)
    assert plain(metric.compute()) == evaluate(logits, labels, bins=7, metrics=metrics).as_row()


def test_batches_equal_an_evaluation_of_the_same_batches_to_the_last_digit():
    logits, labels = predictions(1000)
    metric, evaluation = CalibrationMetrics(10, metrics=calibration.ALL), Evaluation(metrics=calibration.ALL)
    for rows in torch.arange(1000).split(170):
        metric.update(logits[rows], labels[rows])
        evaluation.update(logits[rows], labels[rows])
    assert plain(metric.compute()) == evaluation.compute().as_row()
    assert metric.reliability().as_dict() == evaluation.reliability().as_dict()


def test_probabilities_have_no_metrics_of_logits():
    logits, labels = predictions(100)
    p = logits.softmax(1)
    metric = CalibrationMetrics(10, from_probabilities=True, metrics=calibration.ALL)
    metric.update(p, labels)
    assert plain(metric.compute()) == evaluate_probabilities(p, labels).as_row()
    assert math.isnan(metric.compute()["max_logit"])


def test_forward_gives_the_batch_and_adds_it():
    logits, labels = predictions(200)
    metric = CalibrationMetrics(10)
    for rows in torch.arange(200).split(50):
        values = metric(logits[rows], labels[rows])
        expected = evaluate(logits[rows], labels[rows], metrics=calibration.STREAMING)
        assert plain(values) == expected.as_row()
    assert float(metric.compute()["ece"]) == pytest.approx(evaluate(logits, labels).ece, abs=1e-12)


def test_reset_copies_pickles_casts_and_collections_keep_the_sums():
    logits, labels = predictions(200)
    metric = CalibrationMetrics(10, metrics=calibration.ALL)
    metric.update(logits, labels)
    expected = plain(metric.compute())
    assert plain(pickle.loads(pickle.dumps(metric)).compute()) == expected
    assert plain(metric.clone().half().to("cpu").compute()) == expected
    assert metric.sum_count.dtype == torch.int64
    assert metric.sum_confidence.dtype == torch.float64
    metric.reset()
    with pytest.raises(ValueError, match="at least one batch"), pytest.warns(UserWarning, match="before the"):
        metric.compute()
    metric.update(logits, labels)
    assert plain(metric.compute()) == expected
    collection = MetricCollection({"few": CalibrationMetrics(10), "many": CalibrationMetrics(10, bins=15)})
    collection.update(logits, labels)
    assert float(collection.compute()["many_ece"]) == evaluate(logits, labels, bins=15).ece


def test_a_refused_batch_leaves_no_trace():
    logits, labels = predictions(100)
    metric = CalibrationMetrics(10)
    metric.update(logits, labels)
    before = plain(metric.compute())
    with pytest.raises(ValueError, match="got nan in row"):
        metric.update(torch.full((3, 10), torch.nan), torch.zeros(3).long())
    with pytest.raises(ValueError, match="scores of 10 classes, got 9"):
        metric.update(torch.zeros(3, 9), torch.zeros(3).long())
    assert plain(metric.compute()) == before


def metrics_over_ranks(results):
    rank = torch.distributed.get_rank()
    logits, labels = predictions(1000)
    logits = logits.double()
    parts = {"uneven": [slice(0, 300), slice(300, 1000)], "empty": [slice(0, 1000), None]}
    for name, slices in parts.items():
        metric = CalibrationMetrics(10, metrics=calibration.ALL)
        for rows in torch.arange(1000)[slices[rank]].split(100) if slices[rank] else ():
            metric.update(logits[rows], labels[rows])
        values = plain(metric.compute())
        curve = metric.reliability().as_dict()
        assert plain(metric.compute()) == values
        torch.save((values, curve), f"{results}/{name}-{rank}.pt")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_ranks_equal_one_process(tmp_path):
    on_ranks(2, metrics_over_ranks, tmp_path)
    logits, labels = predictions(1000)
    whole = Evaluation(metrics=calibration.ALL)
    whole.update(logits.double(), labels)
    for path in sorted(tmp_path.glob("*.pt")):
        values, curve = torch.load(path)
        assert values == pytest.approx(whole.compute().as_row(), abs=1e-12), path
        assert curve["share"] == whole.reliability().as_dict()["share"]
        assert curve["ece"] == pytest.approx(whole.reliability().ece, abs=1e-12)
    assert len(list(tmp_path.glob("*.pt"))) == 4


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_it(tmp_path):
    lightning = pytest.importorskip("lightning")
    logits, labels = predictions(100)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.identity, self.calibration = torch.nn.Identity(), CalibrationMetrics(10)

        def validation_step(self, batch, index):
            inputs, targets = batch
            self.calibration.update(self.identity(inputs), targets)

        def on_validation_epoch_end(self):
            self.log_dict(self.calibration.compute())
            self.calibration.reset()

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path, **quiet)
    module = Module()
    for _ in range(2):  # the second time as the first: it was reset
        trainer.validate(module, DataLoader(TensorDataset(logits, labels), 32), verbose=False)
        expected = evaluate(logits, labels, metrics=calibration.STREAMING).as_row()
        assert {name: float(value) for name, value in trainer.callback_metrics.items()} == pytest.approx(
            expected, rel=1e-5
        )
