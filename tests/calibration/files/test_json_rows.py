"""Rows of JSON, and what Hugging Face's Trainer and pipelines leave behind."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from orthograd.calibration import evaluate, evaluate_probabilities
from orthograd.calibration.files.reading import read_predictions
from tests.calibration.files.refusal import refused

LOGITS = [[2.5, -1.0, 0.0], [0.5, 1.5, -2.0]]
ROWS = [{"text": "a", "logits": LOGITS[0], "label": 0}, {"text": "b", "logits": LOGITS[1], "label": 2}]


def lines(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_rows_columns_and_lines_are_read_the_same(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "columns.json").write_text(json.dumps({"logits": LOGITS, "labels": [0, 2]}))
    for path in (lines(tmp_path / "a.jsonl", ROWS), tmp_path / "rows.json", tmp_path / "columns.json"):
        found = read_predictions(path)
        assert found.scores.tolist() == LOGITS
        assert found.labels.tolist() == [0, 2]


def test_every_form_of_predictions_has_its_rows(tmp_path):
    binary = read_predictions(lines(tmp_path / "a.jsonl", [{"logits": 0.5, "label": 1}]), task="binary")
    assert (binary.scores.tolist(), binary.labels.tolist()) == ([0.5], [1])
    rows = [{"probs": [0.5, 0.1], "labels": [1, 0]}]
    several = read_predictions(lines(tmp_path / "b.jsonl", rows), task="multilabel", probabilities=True)
    assert (several.scores.tolist(), several.labels.tolist()) == ([[0.5, 0.1]], [[1, 0]])
    rows = [{"logits": [1.0, 2.0], "label": 0}, {"logits": [1.0, 2.0, 3.0], "label": 2}]
    ragged = read_predictions(lines(tmp_path / "c.jsonl", rows), task="multiple_choice")
    assert (ragged.scores.tolist(), ragged.offsets.tolist()) == ([1.0, 2.0, 1.0, 2.0, 3.0], [0, 2, 5])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"logits": [1, 2], "label": 0}\n{"logits": [1, 2, 3], "label": 0}',
            [":2: expected 2 scores as in the first"],
        ),
        ('{"logits": [1, 2], "label": 0}\n\n{"logits": [1, "b"], "label": 0}', [":3: expected numbers", 'got "b"']),
        ('{"logits": [1, 2], "label": 0}\n{"logits": [1, null], "label": 0}', [":2: expected numbers", "got null"]),
        ('{"logits": [1, 2], "label": 0}\n{"logits": 1, "label": 0}', [":2: expected a list of scores", "got 1"]),
        ('{"logits": [1, 2], "label": 0}\n{"logits": [1, 2]}', [":2: expected 'label', got 'logits'"]),
        ('{"logits": [1, 2], "label": "cat"}', [":1: expected an integer in 'label'", 'got "cat"']),
        ('{"logits": [1, 2], "label": 0.5}', [":1: expected an integer in 'label', got 0.5"]),
        ('{"logits": [1, 2], "label": 1e999}', [":1: expected an integer in 'label'"]),
        ('{"logits": [1, 2], "label": 0', [":1: expected a JSON object"]),
        ("", ["expected at least one row, got none"]),
        ('{"probs": [0.5, 0.5], "label": 0}', ["pass --probabilities"]),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, text, words):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    refused(path, str(path), *words)


def test_json_that_cannot_be_used_names_its_line_or_row(tmp_path):
    path = tmp_path / "a.json"
    for text, word in (
        ('[\n{"logits": [1, 2]\n', f"{path}:3: expected JSON"),
        ('[{"logits": [1, 2], "label": 0}, 7]', f"{path}, row 1: expected a JSON object, got 7"),
        ('{"logits": [[1, 2]], "label": [0, 1]}', "columns that are lists of one length"),
        ("7", "expected at least one row"),
    ):
        path.write_text(text)
        refused(path, word)


def test_the_bytes_read_so_far_are_reported(tmp_path):
    path = lines(tmp_path / "a.jsonl", [ROWS[0]] * 5000)
    seen: list[int] = []
    assert len(read_predictions(path, report=seen.append).labels) == 5000
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] <= path.stat().st_size


@pytest.fixture(scope="module")
def bert():
    """A small BERT with random weights and a tokenizer of six words."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(["[UNK]", "[PAD]", "a", "b", "c", "d"])}, "[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    return transformers, tokenizer, transformers.BertConfig(vocab_size=6, pad_token_id=1, num_labels=3, **sizes)


@pytest.mark.parametrize("names", [None, {0: "sad", 1: "happy", 2: "angry"}])
def test_scores_of_a_real_pipeline_are_its_probabilities_by_label(tmp_path, bert, names):
    transformers, tokenizer, config = bert
    config = transformers.BertConfig.from_dict({**config.to_dict(), **({"id2label": names} if names else {})})
    model = transformers.BertForSequenceClassification(config).eval()
    texts, truth = ["a b", "c d a", "d d", "b"], [0, 2, 1, 1]
    outputs = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)(texts)
    labels = [names[number] for number in truth] if names else truth
    rows = [{"scores": scores, "label": label} for scores, label in zip(outputs, labels, strict=True)]
    path = lines(tmp_path / "a.jsonl", rows)
    refused(path, "pass --probabilities")
    found = read_predictions(path, probabilities=True)
    logits = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits.detach() for text in texts])
    assert evaluate_probabilities(found.scores, found.labels).loss == pytest.approx(
        log_loss(truth, logits.double().softmax(1).numpy(), labels=[0, 1, 2]), rel=1e-5
    )
    alone = [{**rows[0], "scores": rows[0]["scores"][:1]}]
    refused(lines(path, alone), "a score of every class, got one: run the pipeline with top_k=None", probabilities=True)
    rows[1]["label"] = "bored"
    refused(lines(path, rows), f"{path}:2: expected a label among", "got 'bored'", probabilities=True)
    rows[2]["scores"] = rows[2]["scores"][:2]
    refused(lines(path, rows[:1] + rows[2:]), f"{path}:2: expected a score of each of", probabilities=True)


def test_padded_tokens_of_a_real_trainer_are_read_and_left_out(tmp_path, bert):
    transformers, tokenizer, config = bert
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        tmp_path, report_to="none", use_cpu=True, disable_tqdm=True, per_device_eval_batch_size=2
    )
    words = [tokenizer(text)["input_ids"] for text in ("a b", "c d a b", "d", "a c b d a")]
    data = [{"input_ids": ids, "labels": [id % 3 for id in ids]} for ids in words]
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
    model = transformers.BertForTokenClassification(config)
    output = transformers.Trainer(model, arguments, data_collator=collator).predict(data)
    np.savez(tmp_path / "a.npz", predictions=output.predictions, label_ids=output.label_ids)
    file = read_predictions(tmp_path / "a.npz", classes_dim=-1, ignore_index=-100)
    measured = evaluate(file.scores, file.labels, classes_dim=-1, ignore_index=-100)
    is_token = output.label_ids != -100
    assert measured.samples == is_token.sum() == sum(map(len, words))
    expected = accuracy_score(output.label_ids[is_token], output.predictions[is_token].argmax(-1))
    assert measured.top1_accuracy == pytest.approx(100 * expected)
    assert file.source == "logits 'predictions', labels 'label_ids'"


def test_names_of_the_trainer_are_second_to_the_usual_ones(tmp_path):
    np.savez(tmp_path / "a.npz", predictions=np.zeros(2), logits=np.array(LOGITS), labels=np.array([0, 2]))
    assert read_predictions(tmp_path / "a.npz").scores.tolist() == LOGITS


def test_labels_may_have_the_name_that_scikit_learn_gives_them(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.array(LOGITS), y_true=np.array([0, 2]))
    assert read_predictions(tmp_path / "a.npz").labels.tolist() == [0, 2]
    np.savez(tmp_path / "a.npz", logits=np.array(LOGITS), y_true=np.array([0, 2]), labels=np.array([1, 1]))
    assert read_predictions(tmp_path / "a.npz").labels.tolist() == [1, 1]


def test_ragged_arrays_need_their_offsets(tmp_path):
    arrays = {"logits": np.array([1.0, 2.0, 1.0, 2.0, 3.0]), "labels": np.array([0, 2])}
    np.savez(tmp_path / "a.npz", **arrays)
    refused(tmp_path / "a.npz", "expected an array 'offsets'", task="multiple_choice")
    for dtype in ("i8", "u8"):  # torch has few operations for unsigned integers
        np.savez(tmp_path / "a.npz", **arrays, offsets=np.array([0, 2, 5], dtype))
        offsets = read_predictions(tmp_path / "a.npz", task="multiple_choice").offsets
        assert (offsets.dtype, offsets.tolist()) == (torch.int64, [0, 2, 5])
