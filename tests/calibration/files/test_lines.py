"""Errors about values in a table or in rows of JSON name the line of the file."""

from __future__ import annotations

import json

import pytest

from orthograd.calibration.files.evaluation import Settings, evaluated
from orthograd.calibration.files.reading import read_predictions
from orthograd.calibration.files.recalibration import recalibrations

GOOD = {"logits": [1.0, 2.0], "label": 0}
CSV = {"nan": ("nan,2", 0), "label": ("1,2", 2), "half": ("1,2", 0.5), "name": ("1,two", 0)}


def told(path, *held_out, **options):
    """The error of an evaluation."""
    with pytest.raises(ValueError, match="expected") as error:
        evaluated(
            [read_predictions(path, **options)],
            [read_predictions(each, **options) for each in held_out],
            Settings(resamples=0),
        )
    return str(error.value)


def lines(path, rows):
    """A file with a blank line after each row: row k is in line 2k + 1."""
    path.write_text("\n\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(
    ("options", "good", "bad", "words"),
    [
        ({}, GOOD, {"logits": [float("nan"), 2.0], "label": 0}, "finite logits, got nan in line 5, class 0 ("),
        ({}, GOOD, {"logits": [1.0, 2.0], "label": 2}, "labels from 0 to 1, got 2 in line 5"),
        ({}, GOOD, {"logits": [1.0, 2.0], "label": -100}, "got -100 in line 5; to leave out"),
        ({"ignore_index": 0}, GOOD, {"logits": [1.0, float("inf")], "label": 1}, "got inf in line 5, class 1"),
        ({"task": "binary"}, {"logits": 1.0, "label": 0}, {"logits": 1.0, "label": 2}, "got 2 in line 5"),
        ({"task": "binary"}, {"logits": 1.0, "label": 0}, {"logits": float("nan"), "label": 0}, "got nan in line 5 ("),
        (
            {"task": "multilabel"},
            {"logits": [1.0, 2.0], "labels": [0, 1]},
            {"logits": [1.0, 2.0], "labels": [0, 2]},
            "labels from 0 to 1, got 2 in line 5, label 1",
        ),
        (
            {"task": "multiple_choice"},
            {"logits": [1.0, 2.0], "label": 0},
            {"logits": [1.0, 2.0, float("nan")], "label": 0},
            "got nan in line 5, class 2",
        ),
        (
            {"task": "multiple_choice"},
            {"logits": [1.0, 2.0, 3.0], "label": 0},
            {"logits": [1.0], "label": 0},
            "at least two choices in each row, got 1 in line 5",
        ),
        (
            {"probabilities": True},
            {"probs": [0.5, 0.5], "label": 0},
            {"probs": [0.5, 0.4], "label": 0},
            "a sum of 0.9 in line 5; if",
        ),
        (
            {"task": "multilabel", "probabilities": True},
            {"probs": [0.5, 0.5], "label": [0, 0]},
            {"probs": [0.5, 1.5], "label": [0, 0]},
            "from 0 to 1, got 1.5 in line 5, label 1",
        ),
    ],
)
def test_a_line_of_json_is_named(tmp_path, options, good, bad, words):
    path = lines(tmp_path / "a.jsonl", [good, good, bad, good])
    assert told(path, **options).startswith(f"{path}: expected")
    assert words in told(path, **options)
    fine = lines(tmp_path / "b.jsonl", [{**good, "label": 1} if options == {"ignore_index": 0} else good] * 4)
    assert words in told(fine, path, **options)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan", ": expected finite logits, got nan in line 7, class 0"),
        ("label", ": expected labels from 0 to 1, got 2 in line 7"),
        ("half", ":7: expected labels as integers, got 0.5 in 'label'"),
        ("name", ":7: expected a number in column 'b', got 'two'"),
    ],
)
def test_a_line_of_a_table_is_named(tmp_path, name, words):
    """The header has two lines, then come a blank line, a row of two lines, a blank line, and the bad row of two."""
    scores, label = CSV[name]
    path = tmp_path / "a.csv"
    path.write_text(f'"text\nof",a,b,label\n\n"a\nb",1,2,0\n\n"c\nd",{scores},{label}\n"e",1,2,0\n')
    assert f"{path}{words}" in told(path, classes=["a", "b"])


def test_a_certain_probability_is_named_by_its_line(tmp_path):
    rows = [{"probs": [0.6, 0.4], "label": 0}, {"probs": [0.2, 0.8], "label": 1}, {"probs": [1.0, 0.0], "label": 0}]
    file = read_predictions(lines(tmp_path / "a.jsonl", rows), probabilities=True)
    held_out = read_predictions(lines(tmp_path / "b.jsonl", rows[:2] * 4), probabilities=True)
    results = evaluated([file], [held_out], Settings(resamples=0))
    assert "got 0 in line 5 and 0 more rows" in results.unscaled["a.jsonl"]
    for each in recalibrations(results.columns[0], None, Settings(resamples=0)):
        assert "got 0 in line 5 and 0 more rows" in each.failure


def test_rows_without_lines_stay_rows(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([GOOD, GOOD | {"label": 5}]))
    assert f"{path}: expected labels from 0 to 1, got 5 in row 1" in told(path)
