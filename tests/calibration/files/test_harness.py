"""Samples of lm-evaluation-harness: a real file, and every way in which it writes a question."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from orthograd.calibration import evaluate
from orthograd.calibration.files.reading import read_predictions
from tests.calibration.files.refusal import refused

# Written by lm_eval 0.4 with --log_samples: SmolLM2-135M-Instruct has to tell how sentences of docs/ end. Only the
# fields doc and resps, which repeat the others, were removed.
REAL = Path(__file__).parent / "samples_docs_endings_2026-11-18T15-07-50.757666.jsonl"


def sample(likelihoods, target, choices=None, *, context="Once", **fields):
    """A line as version 0.4 writes it: everything in responses and the target as text."""
    choices = choices or [f"choice {number}" for number in range(len(likelihoods))]
    arguments = {
        f"gen_args_{number}": {"arg_0": context, "arg_1": f" {choice}"} for number, choice in enumerate(choices)
    }
    responses = [[str(likelihood), "False"] for likelihood in likelihoods]
    return {
        "doc_id": 0,
        "target": str(target),
        "arguments": arguments,
        "filtered_resps": responses,
        "filter": "none",
        **fields,
    }


def written(tmp_path, *samples):
    path = tmp_path / "samples_quiz_2026-04-17T20-18-28.440238.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in samples), encoding="utf-8")
    return path


@pytest.mark.parametrize(("normalize", "stated"), [("none", "acc"), ("characters", "acc_norm"), ("bytes", "acc_bytes")])
def test_the_accuracy_of_a_real_file_is_the_one_that_it_states(normalize, stated):
    file = read_predictions(REAL, normalize=normalize)
    lines = [json.loads(line) for line in REAL.read_text(encoding="utf-8").splitlines()]
    measured = evaluate(file.scores, file.labels, task="multiple_choice", offsets=file.offsets)
    assert measured.top1_accuracy == pytest.approx(100 * np.mean([line[stated] for line in lines]), abs=1e-12)
    assert any(line["acc"] != line["acc_norm"] for line in lines)  # or this would test one of them
    assert (file.form.task, file.benchmark, file.labels.shape) == ("multiple_choice", "docs_endings", (24,))


def test_the_loss_of_a_real_file_is_that_of_a_softmax_over_its_choices():
    file = read_predictions(REAL)
    losses = []
    for line in REAL.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        likelihoods = np.array([float(value) for value, _ in each["filtered_resps"]])
        losses.append(np.log(np.exp(likelihoods - likelihoods.max()).sum()) + likelihoods.max())
        losses[-1] -= likelihoods[int(each["target"])]
    measured = evaluate(file.scores, file.labels, task="multiple_choice", offsets=file.offsets)
    assert measured.loss == pytest.approx(np.mean(losses), rel=1e-12)


def test_older_files_with_numbers_and_lists_are_read_the_same(tmp_path):
    old = {"target": 1, "arguments": [["Once", " a"], ["Once", " b"]], "resps": [[[-3.0, False]], [[-1.5, True]]]}
    new = sample([-3.0, -1.5], 1, ["a", "b"])
    first, second = (read_predictions(written(tmp_path, each)) for each in (old, new))
    assert first.scores.tolist() == second.scores.tolist() == [-3.0, -1.5]
    assert first.labels.tolist() == second.labels.tolist() == [1]


@pytest.mark.parametrize("target", ["2", "blue", " blue", "[2]", "['blue']"])
def test_a_target_is_an_index_or_the_text_of_a_choice(tmp_path, target):
    path = written(tmp_path, sample([-1.0, -2.0, -3.0], target, ["red", "green", "blue"]))
    assert read_predictions(path).labels.tolist() == [2]


def test_a_label_can_be_taken_from_the_document(tmp_path):
    path = written(tmp_path, sample([-1.0, -2.0], "?", doc={"answer": 1}))
    refused(path, ":1: expected a target from 0 to 1", "--labels-key")
    assert read_predictions(path, labels_key="doc.answer").labels.tolist() == [1]
    refused(path, "expected 'doc.truth'", labels_key="doc.truth")


def test_with_choices_in_the_context_the_accuracy_says_which_of_two_is_right(tmp_path):
    """As in winogrande: all continuations are the same, and the target is that text."""
    samples = []
    for accuracy in (1.0, 0.0):
        each = sample([-4.0, -3.0], "was late", acc=accuracy)
        each["arguments"] = {"gen_args_0": {"arg_0": "Ann", "arg_1": " was late"}}
        each["arguments"]["gen_args_1"] = {"arg_0": "Bob", "arg_1": " was late"}
        samples.append(each)
    assert read_predictions(written(tmp_path, *samples)).labels.tolist() == [1, 0]


@pytest.mark.parametrize("target", ["-1", "None", "maybe"])
def test_no_label_is_made_up_for_a_target_that_is_none(tmp_path, target):
    path = written(tmp_path, sample([-1.0, -3.0], target, ["yes", "no"], acc=0.0))
    refused(path, f":1: expected a target from 0 to 1 or the text of a choice, got '{target}'")


DIGITS = ["1", "2", "3", "4"]


@pytest.mark.parametrize(("accuracy", "label"), [({"acc": 1.0}, 1), ({"acc": 0.0}, 2), ({"acc_norm": 1.0}, 1)])
@pytest.mark.parametrize("options", [{}, {"labels_key": "doc.answer"}])
def test_the_accuracy_says_whether_digits_are_an_index_or_the_text_of_a_choice(tmp_path, accuracy, label, options):
    each = sample([-5.0, -1.0, -8.0, -7.0], "2", DIGITS, doc={"answer": "2"}, **accuracy)
    assert read_predictions(written(tmp_path, each), **options).labels.tolist() == [label]


def test_targets_of_a_file_are_all_indices_or_all_texts(tmp_path):
    """The second line could be either: its prediction is wrong both ways."""
    unclear = sample([-1.0, -9.0, -8.0, -7.0], "2", DIGITS, acc=0.0)
    refused(written(tmp_path, unclear), ":1: expected a target that is either", "choice 2 by index, choice 1 by text")
    for first, labels in (("4", [3, 1]), ("0", [0, 2])):
        assert read_predictions(written(tmp_path, sample([-1.0] * 4, first, DIGITS), unclear)).labels.tolist() == labels
    as_number = written(tmp_path, {**unclear, "target": 2})
    assert read_predictions(as_number).labels.tolist() == [2]


@pytest.mark.parametrize("delimiter", ["", " ", "\n\n"])
def test_a_choice_is_as_long_as_the_harness_counts_it(tmp_path, delimiter):
    """Choices that begin with a space count it; the delimiter before them is not counted."""
    samples = []
    for label, likelihoods in enumerate(([-2.0, -4.5], [-2.0, -3.5])):
        each = sample(likelihoods, label, acc=1.0 - label, acc_norm=1.0)
        for number, choice in enumerate((" Y", " Nev")):
            each["arguments"][f"gen_args_{number}"]["arg_1"] = delimiter + choice
        samples.append(each)
    scores = read_predictions(written(tmp_path, *samples), normalize="characters").scores
    assert scores.tolist() == [-1.0, -4.5 / 4, -1.0, -3.5 / 4]


def test_lengths_that_contradict_the_file_are_named(tmp_path):
    path = written(tmp_path, sample([-1.0, -4.0], 0, ["yes", "no"], acc=1.0, acc_norm=0.0))
    refused(path, ":1: expected acc_norm 0.0 as the file states, got 1 with lengths 3, 2 of the choices, and choice 0")


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_a_log_likelihood_that_is_no_number_is_named(tmp_path, value):
    path = written(tmp_path, sample([-1.0, -2.0], 0, acc=1.0), sample([value, -1.0], 1, acc=0.0))
    refused(path, f":2: expected finite log-likelihoods, got {value}")


def test_likelihoods_without_a_context_are_left_out(tmp_path):
    each = sample([-4.0, -3.0, -1.0, -9.0], 1, ["a", "b", "a", "b"], acc=1.0)
    for number in (2, 3):
        each["arguments"][f"gen_args_{number}"]["arg_0"] = ""
    assert read_predictions(written(tmp_path, each)).scores.tolist() == [-4.0, -3.0]


def test_an_accuracy_that_contradicts_the_target_is_refused(tmp_path):
    right, wrong = sample([-1.0, -2.0], 0, acc=1.0), sample([-1.0, -2.0], 1, acc=1.0)
    path = written(tmp_path, right, wrong)
    refused(path, f"{path}:2: expected acc 1.0 as the file states, got 0 with target '1' as choice 1")
    refused(written(tmp_path, sample([-1.0, -2.0], 0, acc=0.7)), ":1: expected acc 0 or 1", "got 0.7")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"filtered_resps": ["Paris"], "target": "Paris"}'], [":1: expected [log-likelihood", "generate_until"]),
        (
            ['{"resps": [["42", "41"]], "target": "42"}'],
            [":1: expected log-likelihoods of at least two choices, got one"],
        ),
        ([json.dumps(sample([-2.5], "cat"))], [":1:", "at least two choices"]),
        ([json.dumps(sample([-1.0, -2.0], 5))], [":1: expected a target from 0 to 1", "got '5'"]),
        ([json.dumps(sample([-1.0, -2.0], "[0, 1]"))], [":1: expected one right choice, got [0, 1]"]),
        ([json.dumps(sample([-1.0, -2.0], 0)), "{"], [":2: expected a JSON object, got {"]),
        ([json.dumps(sample([-1.0, -2.0], 0)), "", "7"], [":3: expected a JSON object, got 7"]),
        (
            [json.dumps(sample([-1.0, -2.0], 0)), json.dumps(sample([-1.0, -2.0], 0, filter="strict"))],
            [":2: expected one filter"],
        ),
        (
            [json.dumps({"filtered_resps": [[-1.0, False], [-2.0, False]]})],
            [":1: expected 'target', got filtered_resps"],
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, lines, words):
    path = tmp_path / "samples_a.jsonl"
    path.write_text("\n".join(lines))
    refused(path, str(path), *words)


def test_options_for_other_files_are_refused(tmp_path):
    path = written(tmp_path, sample([-1.0, -2.0], 0))
    refused(path, "no --probabilities", probabilities=True)
    refused(path, "task 'multiple_choice'", task="binary")
    lonely = sample([-1.0, -2.0], 0)
    del lonely["arguments"]
    refused(written(tmp_path, lonely), ":1: expected the text of each choice", normalize="bytes")
