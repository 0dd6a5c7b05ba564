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

FORMS = {
    "tokens": {"classes_dim": -1, "ignore_index": -100},
    "maps": {"classes_dim": 1, "ignore_index": 255},
    "first class ignored": {"ignore_index": 0},
    "weighted": {"weighted": True},
    "weighted tokens": {"classes_dim": -1, "ignore_index": -100, "weighted": True},
    "binary": {"task": "binary"},
    "binary maps": {"task": "binary", "ignore_index": 255},
    "multilabel": {"task": "multilabel"},
    "multilabel maps": {"task": "multilabel", "classes_dim": 1, "ignore_index": -1, "weighted": True},
}


def plain(values):
    return {name: None if value.isnan() else float(value) for name, value in values.items()}


def samples(form, n=60):
    """Logits, labels and weights of a form, and five positions per sample where they have more dimensions."""
    options, generator = FORMS[form], torch.Generator().manual_seed(0)
    several = (n, 5) if "classes_dim" in options or form == "binary maps" else (n,)
    logits = 3 * torch.randn(*several, 4, generator=generator, dtype=torch.float64)
    truth = logits + 2 * torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    labels = (truth > 0).long() if "task" in options else truth.argmax(-1)
    if options.get("task") == "binary":
        logits, labels = logits[..., 0], labels[..., 0]
    ignored = options.get("ignore_index")
    if ignored is not None:
        labels[torch.rand(labels.shape, generator=generator) < 0.3] = ignored
        labels[:10] = ignored  # a batch of padding
    weights = 2 * torch.rand(labels.shape, generator=generator, dtype=torch.float64)
    if options.get("classes_dim") == 1:
        logits = logits.movedim(-1, 1)
        labels, weights = (part.movedim(-1, 1) if "task" in options else part for part in (labels, weights))
    return logits, labels, weights if "weighted" in options else None


def of_form(form, **options):
    """A metric of a form, with every metric that it defines."""
    is_weighted = "weighted" in FORMS[form]
    names = [name for name in calibration.ALL if not is_weighted or name not in calibration.metrics.WEIGHTLESS]
    return CalibrationMetrics(2 if "binary" in form else 4, metrics=names, **FORMS[form], **options)


def expected_of(form, metric, *, evaluated=evaluate, scores=None):
    logits, labels, weights = samples(form)
    options = {name: value for name, value in FORMS[form].items() if name != "weighted"}
    return evaluated(logits if scores is None else scores, labels, weights=weights, metrics=metric.metrics, **options)


def update_with(metric, form, rows):
    metric.update(*(part[rows] for part in samples(form) if part is not None))


def close(values, expected):
    undefined = [{name for name, value in row.items() if value is None} for row in (values, expected)]
    assert undefined[0] == undefined[1]
    for name, value in expected.items():
        assert value is None or values[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("form", FORMS)
def test_batches_of_every_form_equal_evaluate(form):
    metric = of_form(form)
    for again in range(2):  # the second time as the first: it was reset
        for rows in torch.arange(60).split(10):
            update_with(metric, form, rows)
            metric = pickle.loads(pickle.dumps(metric)) if again else metric
        expected = expected_of(form, metric)
        close(plain(metric.compute()), expected.as_row())
        result = metric.result()
        assert (result.samples, result.ignored, result.classes) == (
            expected.samples,
            expected.ignored,
            expected.classes,
        )
        if expected.task == "multilabel":
            close(result.micro.as_row(), expected.micro.as_row())
            for label, row in zip(result.per_label, expected.per_label, strict=True):
                close(label.as_row(), row.as_row())
        metric.reset()


@pytest.mark.parametrize("form", FORMS)
def test_forward_of_every_form_adds_the_batch(form):
    logits, labels, weights = samples(form)
    metric = of_form(form)
    for rows in torch.arange(60).split(10):
        values = metric(logits[rows], labels[rows], weights=None if weights is None else weights[rows])
        is_padding = "ignore_index" in FORMS[form] and rows[0] == 0
        assert all(map(math.isnan, values.values())) == is_padding
    close(plain(metric.compute()), expected_of(form, metric).as_row())


@pytest.mark.parametrize("form", FORMS)
def test_probabilities_of_every_form_equal_evaluate_probabilities(form):
    logits, labels, weights = samples(form)
    p = logits.sigmoid() if "task" in FORMS[form] else logits.softmax(FORMS[form].get("classes_dim", 1))
    metric = of_form(form, from_probabilities=True)
    metric.update(p, labels, weights)
    close(plain(metric.compute()), expected_of(form, metric, evaluated=evaluate_probabilities, scores=p).as_row())


def test_by_default_all_metrics_that_the_form_defines_are_computed():
    assert CalibrationMetrics(4).metrics == calibration.STREAMING
    assert CalibrationMetrics(4, weighted=True).metrics == Evaluation(weighted=True).metrics


def test_samples_of_padding_only_are_undefined():
    metric = CalibrationMetrics(3, task="multilabel", ignore_index=-1, metrics=["ece"])
    metric.update(torch.randn(4, 3), torch.full((4, 3), -1))
    assert metric.compute()["ece"].isnan()
    metric.update(torch.randn(4, 3), torch.tensor([[0, 1, -1]]).expand(4, 3))
    assert metric.compute()["ece"].isnan()  # the mean over labels, one of them without a sample
    with pytest.raises(ValueError, match=r"sample of every label, got none of labels \[2\]"):
        metric.result()


def test_forms_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="same classes in every row, got 'multiple_choice': use Evaluation"):
        CalibrationMetrics(4, task="multiple_choice")
    with pytest.raises(ValueError, match="2 classes for task 'binary', got 1"):
        CalibrationMetrics(1, task="binary")
    with pytest.raises(ValueError, match="scores of 3 labels, got 4"):
        CalibrationMetrics(3, task="multilabel").update(torch.zeros(2, 4), torch.zeros(2, 4).long())
    with pytest.raises(ValueError, match="weights with every batch"):
        CalibrationMetrics(3, weighted=True).update(torch.zeros(2, 3), torch.zeros(2).long())


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
    for form in FORMS:  # rank 0 has padding only, where there is padding
        metric = of_form(form)
        update_with(metric, form, slice(0, 10) if rank == 0 else slice(10, 60))
        close(plain(metric.compute()), expected_of(form, metric).as_row())
        assert metric.result().samples == expected_of(form, metric).samples
        empty = of_form(form)
        if rank == 0:
            update_with(empty, form, slice(0, 60))
        close(plain(empty.compute()), expected_of(form, empty).as_row())


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
