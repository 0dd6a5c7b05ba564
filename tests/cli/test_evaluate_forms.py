"""`orthograd evaluate` on maps, tokens, labels and choices, and on the seeds of two methods."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn.metrics import accuracy_score, log_loss

import orthograd.cli.evaluate as command
from orthograd import calibration
from tests.cli.test_evaluate_command import predictions, read_record, refused, run, saved

SAMPLES = next((Path(__file__).parents[1] / "calibration" / "files").glob("samples_docs_endings_*.jsonl"))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_maps_with_ignored_pixels_are_what_scikit_learn_makes_of_the_rest(tmp_path, out):
    logits, labels = (part.numpy() for part in predictions(samples=5 * 6 * 7, classes=3))
    maps, truth = np.moveaxis(logits.reshape(5, 6, 7, 3), -1, 1), labels.reshape(5, 6, 7).copy()
    truth[:, 0] = 255
    path = saved(tmp_path / "masks.npz", maps, truth)
    result = run(path, "--classes-dim", 1, "--ignore-index", 255, "--out", out)
    assert result.exit_code == 0, result.output
    file = read_record(out)["files"][0]
    kept = truth.ravel() != 255
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert file["metrics"]["loss"] == pytest.approx(log_loss(labels[kept], probabilities[kept]), rel=1e-9)
    assert (file["samples"], file["ignored"], file["intervals"]) == (175, 35, {})
    assert "no intervals, as positions of one map" in " ".join(result.output.split())
    assert "175 samples (35 ignored), 3 classes; 10 bins." in result.output
    refused(run(path, "--out", out), "masks.npz: expected logits (n, classes), got (5, 3, 6, 7)", "classes_dim=1")


def test_binary_and_multilabel_scores_are_evaluated(tmp_path, out):
    logits, labels = predictions(samples=200, classes=2)
    scores, one_hot = logits[:, 1].numpy(), np.eye(2, dtype=int)[labels.numpy()]
    assert run(saved(tmp_path / "a.npz", scores, labels), "--task", "binary", "--out", out).exit_code == 0
    file = read_record(out)["files"][0]
    assert file["metrics"]["top1_accuracy"] == pytest.approx(100 * accuracy_score(labels, scores > 0))
    assert "ece" in file["intervals"]
    assert run(saved(tmp_path / "b.npz", logits, one_hot), "--task", "multilabel", "--out", out).exit_code == 0
    file = read_record(out)["files"][0]
    assert file["metrics"]["loss"] == calibration.evaluate(logits, one_hot, task="multilabel").loss
    options = ["--task", "multilabel", "--fit", tmp_path / "b.npz", "--page", tmp_path / "b.html", "--out", out]
    assert "b.npz, T per label" in run(tmp_path / "b.npz", *options).output
    scaling = calibration.TemperatureScaling(task="multilabel").fit(logits, one_hot)
    assert read_record(out)["files"][1]["temperature"]["value"] == scaling.temperature.tolist()
    assert "These are means over the labels." in (tmp_path / "b.html").read_text(encoding="utf-8")
    refused(run(tmp_path / "a.npz", "--task", "regression", "--out", out), "expected a task among multiclass")
    refused(run(SAMPLES, "--normalize", "words", "--out", out), "expected normalize among none, characters, bytes")


def test_samples_of_the_harness_have_their_own_accuracy(out):
    result = run(SAMPLES, "--out", out, "--resamples", 50)
    assert result.exit_code == 0, result.output
    stated = [json.loads(line)["acc"] for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    file = read_record(out)["files"][0]
    assert file["metrics"]["top1_accuracy"] == pytest.approx(100 * np.mean(stated))
    assert (file["benchmark"], file["task"]) == ("docs_endings", "multiple_choice")
    assert "24 samples, up to 5 choices; 10 bins." in result.output


def test_a_malformed_line_is_named_in_one_line(tmp_path, out):
    path = tmp_path / "a.jsonl"
    path.write_text('{"logits": [1, 2], "label": 0}\n{"logits": [1, 2}\n')
    refused(run(path, "--out", out), f'{path}:2: expected a JSON object, got {{"logits": [1, 2}}')


def test_reading_a_large_file_shows_its_progress(tmp_path, out, monkeypatch):
    monkeypatch.setattr(command, "LARGE", 1)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    monkeypatch.setenv("TERM", "xterm")
    path = tmp_path / "a.jsonl"
    path.write_text('{"logits": [1.5, 2], "label": 0}\n' * 3000)
    assert "reading a.jsonl" in run(path, "--out", out, "--resamples", 0).output


def seeds(folder, method, sharpness, count=4):
    for seed in range(count):
        logits, labels = predictions(seed=seed, sharpness=sharpness)
        saved(folder / f"{method}-{seed + 8}.npz", logits, labels)
    return f"{method}={folder / method}-*.npz"


def test_seeds_of_two_methods_are_compared_in_pairs_as_scipy_does(tmp_path, out):
    baseline, candidate = seeds(tmp_path, "sharp", 2.5), seeds(tmp_path, "soft", 1.2)
    page = tmp_path / "pair.html"
    result = run("--pair", baseline, candidate, "--out", out, "--page", page)
    assert result.exit_code == 0, result.output
    record = read_record(out)
    assert record["seeds"] == ["8", "9", "10", "11"]
    assert record["files"]["soft"][2] == str(tmp_path / "soft-10.npz")
    ece = [
        [calibration.evaluate(*predictions(seed=seed, sharpness=sharpness)).ece for seed in range(4)]
        for sharpness in (2.5, 1.2)
    ]
    row = record["tables"]["as given"]["ece"]
    assert row["difference"] == pytest.approx(np.mean(ece[1]) - np.mean(ece[0]), rel=1e-9)
    assert row["paired_test"]["p"] == pytest.approx(ttest_rel(ece[1], ece[0]).pvalue, rel=1e-6)
    scaled = record["tables"]["after temperature scaling, cross-fitted in five folds"]["loss"]
    assert scaled["difference"] == pytest.approx(0, abs=1e-9)  # the same logits but for a factor
    assert "soft is better calibrated than sharp" in " ".join(result.output.split())
    assert page.exists()


def test_pairs_that_are_none_are_refused(tmp_path, out):
    baseline, candidate = seeds(tmp_path, "sharp", 2.5), seeds(tmp_path, "soft", 1.2, count=3)
    refused(run("--pair", baseline, candidate, "--out", out), "files of both methods for every seed", "for 11")
    refused(run("--pair", baseline, f"x={tmp_path}/none-*.npz", "--out", out), "none-*.npz: no such files")
    refused(run("--pair", baseline, "soft", "--out", out), "expected NAME=PATTERN with one *", "got soft")
    refused(run("--pair", baseline, baseline, "--out", out), "expected two different names, got sharp twice")
    refused(run("--pair", baseline, candidate, tmp_path / "soft-8.npz", "--out", out), "expected --pair alone")
    (tmp_path / "soft-11.npz").write_bytes((tmp_path / "soft-8.npz").read_bytes())
    refused(run("--pair", baseline, candidate, "--out", out), "the same labels in both files of a seed", "soft-11.npz")
    refused(run("--out", out), "expected at least one file")


def test_a_page_has_the_suffix_of_one(tmp_path, out):
    path = saved(tmp_path / "a.npz", *predictions())
    refused(run(path, "--out", out, "--page", tmp_path / "a.pdf"), "ends in .html for --page", "a.pdf")
    assert not out.exists()
