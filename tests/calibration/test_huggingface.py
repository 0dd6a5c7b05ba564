"""`compute_metrics` in a real Trainer gives what `evaluate` gives."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

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


@pytest.mark.parametrize("is_batched", [False, True])
def test_padded_tokens_are_left_out_in_a_real_trainer(tmp_path, is_batched):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=3, **sizes)
    labels = torch.randint(3, (40, 8))
    labels[torch.rand(40, 8) < 0.4] = -100
    ids = torch.randint(50, (40, 8))
    data = [{"input_ids": row, "labels": truth} for row, truth in zip(ids, labels, strict=True)]
    options = {"batch_eval_metrics": True} if is_batched else {}
    arguments = transformers.TrainingArguments(tmp_path, report_to="none", use_cpu=True, disable_tqdm=True, **options)
    model = transformers.BertForTokenClassification(config).eval()
    function = BatchMetrics() if is_batched else compute_metrics
    trainer = transformers.Trainer(model, arguments, eval_dataset=data, compute_metrics=function)
    with torch.no_grad():
        logits = model(ids).logits
    is_token = labels != -100
    row = evaluate(logits[is_token], labels[is_token], metrics=STREAMING).as_row()
    expected = {name: value for name, value in row.items() if value is not None}
    assert logged(trainer, STREAMING) == pytest.approx(expected, rel=1e-5)
    if not is_batched:
        accuracy = 100 * float((logits.argmax(-1) == labels)[is_token].double().mean())
        assert logged(trainer, ["top1_accuracy"])["top1_accuracy"] == pytest.approx(accuracy)


def test_labels_of_a_multi_label_problem_are_floating_point_in_transformers():
    logits = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    labels = (logits > 0.3).float()
    found = compute_metrics(SimpleNamespace(predictions=logits.numpy(), label_ids=labels.numpy()), task="multilabel")
    assert found["loss"] == pytest.approx(
        float(torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)), rel=1e-5
    )
    with pytest.raises(ValueError, match="labels of 0 and 1"):
        compute_metrics(SimpleNamespace(predictions=logits.numpy(), label_ids=(labels / 2).numpy()), task="multilabel")


def test_binary_logits_have_no_dimension_of_classes():
    logits = torch.randn(30, generator=torch.Generator().manual_seed(0))
    prediction = SimpleNamespace(predictions=logits.numpy(), label_ids=(logits > 0.3).float().numpy())
    expected = evaluate(logits, (logits > 0.3).long(), task="binary")
    assert compute_metrics(prediction, task="binary")["loss"] == expected.loss
    assert BatchMetrics(task="binary")(prediction, compute_result=True)["ece"] == expected.ece
    with pytest.raises(ValueError, match=r"expected task 'multiclass' for the Trainer's logits \(n, choices\)"):
        compute_metrics(prediction, task="multiple_choice")
