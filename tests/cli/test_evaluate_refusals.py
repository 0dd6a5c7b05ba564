"""What `orthograd evaluate` refuses, and how it says so; and its help."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cli.test_evaluate_command import predictions, refused, run, saved


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        ([[math.nan, 0.0], [1.0, 0.0]], [0, 1], "expected finite logits, got nan in row 0"),
        ([[math.inf, 0.0], [1.0, 0.0]], [0, 1], "expected finite logits, got inf in row 0"),
        ([[1.0, 0.0], [1.0, 0.0]], [0, 2], "expected labels from 0 to 1, got 2 in row 1"),
        ([[1.0, 0.0], [1.0, 0.0]], [0, -1], "got -1 in row 1"),
        ([[1.0, 0.0], [1.0, 0.0]], [0, 1, 1], "expected a label for each of 2 samples, got 3"),
        ([[1.0, 0.0], [1.0, 0.0]], [0.0, 0.5], "labels as integers, got 0.5 in row 1 of 'labels'"),
        ([[1.0, 0.0], [1.0, 0.0]], [[0], [1]], "expected labels (n,), got (2, 1)"),
        ([[1, 0], [1, 0]], [0, 1], "logits in floating point, got torch.int64"),
        ([1.0, 0.0], [0, 1], "expected logits (n, classes), got (2,)"),
        ([[1.0], [2.0]], [0, 0], "at least two classes"),
        (np.zeros((0, 2)), np.zeros(0, int), "at least one sample"),
    ],
)
def test_predictions_that_make_no_sense_are_refused_in_one_line(tmp_path, out, logits, labels, words):
    path = saved(tmp_path / "bad.npz", logits, labels)
    refused(run(path, "--out", out), "bad.npz: ", words)
    good = saved(tmp_path / "good.npz", *predictions(classes=2))
    refused(run(good, "--fit-temperature", path, "--out", out), "bad.npz: ", words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("logits", "label", "option"),
    [
        (np.zeros((2, 3, 4)), 0, "--classes-dim 1"),
        (np.zeros(2), 0, "--task binary"),
        (np.zeros((2, 3)), -100, "--ignore-index -100"),
    ],
)
def test_options_that_help_are_named_as_on_the_command_line(tmp_path, out, logits, label, option):
    refused(run(saved(tmp_path / "a.npz", logits, [0, label]), "--out", out), option)


def test_other_bad_input_is_refused_in_one_line(tmp_path, out):
    path = saved(tmp_path / "a.npz", *predictions())
    refused(run(tmp_path / "missing.npz", "--out", out), "missing.npz: no such file")
    refused(run(path, path, "--out", out), "expected different files")
    refused(run(path, "--probabilities", "--out", out), "leave out --probabilities")
    refused(run(path, "--resamples", 1, "--out", out), "at least 2 resamples")
    other = saved(tmp_path / "b.npz", *predictions(classes=3))
    refused(run(path, "--fit-temperature", other, "--out", out), "expected 3 classes as in", "got 4")
    (tmp_path / "file").write_text("")
    refused(run(path, "--resamples", 0, "--out", tmp_path / "file"), "file")
    logits = saved(tmp_path / "c.npz", *predictions(), "probabilities")
    refused(run(logits, "--probabilities", "--out", out), "c.npz: expected probabilities from 0 to 1")


def test_rounded_probabilities_are_told_what_to_do(tmp_path, out):
    path = tmp_path / "a.csv"
    path.write_text("0,1,label\n0.5,0.5,0\n0.33,0.66,1\n")
    result = run(path, "--probabilities", "--out", out)
    refused(result, "a sum of 0.99 in line 3; if they were rounded, store more digits, or divide each row by its sum")
    assert "logits" not in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--device", "toaster"),
        ("--bins", "0"),
        ("--bins", "1001"),
        ("--bins", "1000000000"),
        ("--bins", "10.7"),
        ("--resamples", "-1"),
        ("--resamples", "1000000000"),
        ("--seed", "100000000000000000000"),
        ("--classes", "a\nb"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, out, option, value):
    result = run(saved(tmp_path / "a.npz", *predictions()), option, value, "--out", out)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_help_teaches_what_a_file_holds():
    text = " ".join(run("--help", width=100).output.split())
    assert 'numpy.savez("test.npz", logits=logits, labels=labels)' in text
    assert "orthograd evaluate test.npz --fit held-out.npz" in text
    assert "--fit-temperature" in text
    assert "orthograd evaluate --pair 'sgd=sgd-*.npz' 'orthograd=orthograd-*.npz'" in text
    assert "orthograd evaluate sgd.npz orthograd.npz" in text
