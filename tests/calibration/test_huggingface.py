"""`compute_metrics` in a real Trainer gives what `evaluate` gives."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from orthograd.calibration import ALL, STREAMING, evaluate
from orthograd.calibration.huggingface import BatchMetrics, compute_metrics

pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer advises loggers and devices


@pytest.fixture
def trained(tmp_path):
    """A Trainer of a small BERT with random weights, after two steps; its samples, and their logits."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=3, **sizes)
    data = [{"input_ids": torch.randint(50, (8,)), "labels": torch.tensor(i % 3)} for i in range(40)]

    def trained(function, **options):
        arguments = transformers.TrainingArguments(
            tmp_path, max_steps=2, report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no", **options
        )
        model = transformers.BertForSequenceClassification(config)
        trainer = transformers.Trainer(
            model, arguments, train_dataset=data, eval_dataset=data, compute_metrics=function
        )
        trainer.train()
        with torch.no_grad():
            logits = model.eval()(torch.stack([each["input_ids"] for each in data])).logits
        return trainer, logits, torch.stack([each["labels"] for each in data])

    return trained


def logged(trainer, names):
    found = trainer.evaluate()
    return {name: found[f"eval_{name}"] for name in names if f"eval_{name}" in found}


def test_the_trainer_reports_every_metric(trained):
    trainer, logits, labels = trained(compute_metrics)
    expected = {name: value for name, value in evaluate(logits, labels).as_row().items() if value is not None}
    assert logged(trainer, ALL) == pytest.approx(expected, rel=1e-5)
    assert trainer.predict(trainer.eval_dataset).metrics["test_ece"] == pytest.approx(expected["ece"], rel=1e-5)


def test_options_are_set_by_partial(trained):
    trainer, logits, labels = trained(partial(compute_metrics, bins=3, metrics=["ece"]))
    found = trainer.evaluate()
    assert found["eval_ece"] == pytest.approx(evaluate(logits, labels, bins=3).ece, rel=1e-5)
    assert "eval_brier" not in found


def test_batches_give_the_same_each_time(trained):
    trainer, logits, labels = trained(BatchMetrics(), batch_eval_metrics=True)
    row = evaluate(logits, labels, metrics=STREAMING).as_row()
    expected = {name: value for name, value in row.items() if value is not None}
    for _ in range(2):
        assert logged(trainer, STREAMING) == pytest.approx(expected, rel=1e-5)


def test_the_first_of_several_outputs_are_the_logits(trained):
    trainer, logits, labels = trained(compute_metrics)
    trainer.model.config.output_hidden_states = True
    assert logged(trainer, ["ece"])["ece"] == pytest.approx(evaluate(logits, labels).ece, rel=1e-5)
