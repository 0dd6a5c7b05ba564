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


def test_positions_that_have_no_intervals_have_no_notes_on_them(tmp_path, out):
    logits = np.broadcast_to(9 * np.eye(3), (5, 3, 3)).copy()
    tokens = saved(tmp_path / "tokens.npz", logits, np.broadcast_to(np.arange(3), (5, 3)))
    told = " ".join(run(tokens, "--classes-dim", -1, "--out", out).output.split())
    assert "tokens.npz: no intervals, as positions" in told
    for words in ("95% bootstrap intervals", "every prediction is right", "too narrow"):
        assert words not in told


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


def test_tasks_of_the_harness_are_not_paired_even_if_all_their_labels_are_the_same(tmp_path, out):
    """In BLiMP every task has as many sentences, and the first one is right in all."""
    paths = []
    for folder, task, gap in (("one", "blimp_a", 0.5), ("one", "blimp_b", 3.0), ("other", "blimp_a", 1.0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        paths.append(tmp_path / folder / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl")
        rows = [{"filtered_resps": [[gap - k % 4, False], [0.5, False]], "target": 0} for k in range(40)]
        paths[-1].write_text("\n".join(map(json.dumps, rows)))
    result = run(*paths[:2], "--fit", paths[0], "--out", out, "--resamples", 20)
    assert result.exit_code == 0, result.output
    assert read_record(out)["differences"] == []
    assert "better" not in result.output.replace("lower is better, ↑ higher is better", "")
    result = run(*paths, "--out", out, "--resamples", 20)
    assert [each["path"] for each in read_record(out)["differences"]] == [str(paths[2])]
    assert "Only files with the same task and labels as" in result.output


def test_the_means_over_labels_have_the_chance_of_means_over_labels(tmp_path, out):
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(200, 20))
    truth = (generator.random(scores.shape) < 1 / (1 + np.exp(-scores))).astype(int)
    result = run(saved(tmp_path / "a.npz", scores, truth), "--task", "multilabel", "--out", out)
    expected = calibration.evaluate(scores, truth, task="multilabel")
    assert f"by chance {expected.ece_by_chance:.4f}" in result.output
    assert f"(95%: {expected.ece_by_chance_limit:.4f})" in result.output
    assert "4,000 decisions, mean over 20 labels; 10 bins." in result.output


def as_probabilities(kind):
    """Probabilities of a form, the labels, and the options that name it."""
    logits, labels = (part.numpy() for part in predictions(samples=60, classes=3))
    simplex = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if kind == "maps":
        maps, truth = np.moveaxis(simplex.reshape(5, 3, 4, 3), -1, 1).copy(), labels.reshape(5, 3, 4).copy()
        truth[:, 0], maps[:, :, 0] = 255, 0  # padding
        return maps, truth, ["--classes-dim", 1, "--ignore-index", 255]
    if kind == "multilabel":
        return simplex, np.eye(3, dtype=int)[labels], ["--task", kind]
    return (simplex[:, 0], (labels == 0).astype(int), ["--task", kind]) if kind == "binary" else (simplex, labels, [])


@pytest.mark.parametrize(("filler", "options"), [(0, ["--probabilities"]), (np.nan, ["--probabilities"]), (np.nan, [])])
def test_every_calibrator_of_the_page_takes_padding(tmp_path, out, filler, options):
    maps, truth, form = as_probabilities("maps")
    scores = maps if options else np.log(np.maximum(maps, 1e-9))
    scores[:, :, 0] = filler
    path = saved(tmp_path / "a.npz", scores, truth, "probabilities" if options else "logits")
    result = run(path, *form, *options, "--resamples", 0, "--out", out, "--page", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Structured matrix scaling" in page
    assert "expected finite" not in page
    assert "for a calibrator" not in page


def test_labels_of_a_trainer_for_several_labels_are_in_floating_point(tmp_path, out):
    scores, labels, options = as_probabilities("multilabel")
    np.savez(tmp_path / "a.npz", predictions=9 * scores - 4, label_ids=labels.astype("f4"))
    assert run(tmp_path / "a.npz", *options, "--out", out).exit_code == 0
    assert read_record(out)["files"][0]["metrics"]["loss"] == pytest.approx(
        calibration.evaluate(9 * scores - 4, labels, task="multilabel").loss
    )


def test_choices_that_are_ignored_leave_the_intervals_of_the_others(tmp_path, out):
    logits, labels = (part.numpy() for part in predictions(samples=60))
    arrays = {"logits": logits.ravel(), "offsets": np.arange(0, 241, 4)}
    np.savez(tmp_path / "a.npz", **arrays, labels=np.where(np.arange(60) < 9, -100, labels))
    result = run(tmp_path / "a.npz", "--task", "multiple_choice", "--ignore-index", -100, "--out", out)
    assert "no intervals" not in result.output
    expected = calibration.intervals(logits[9:], labels[9:])
    assert read_record(out)["files"][0]["intervals"]["ece"] == pytest.approx(expected["ece"])


@pytest.mark.parametrize(("kind", "what"), [("maps", "row"), ("multilabel", "score"), ("binary", "score")])
def test_probabilities_of_every_form_given_as_logits_are_told(tmp_path, out, kind, what):
    scores, labels, options = as_probabilities(kind)
    path = saved(tmp_path / "p.npz", scores, labels)
    told = " ".join(run(path, *options, "--out", out, "--resamples", 0).output.split())
    assert f"p.npz: every {what} lies in [0, 1]" in told
    assert "as probabilities do, but it is evaluated as logits" in told
    assert ("sums to 1" in told) == (kind == "maps")
    assert read_record(out)["logits_that_look_like_probabilities"] == [path]
    plain = saved(tmp_path / "z.npz", 9 * scores - 4, labels)
    assert "as probabilities do" not in run(plain, *options, "--out", out, "--resamples", 0).output


def test_a_malformed_line_is_named_in_one_line(tmp_path, out):
    path = tmp_path / "a.jsonl"
    path.write_text('{"logits": [1, 2], "label": 0}\n{"logits": [1, 2}\n')
    refused(run(path, "--out", out), f'{path}:2: expected a JSON object, got {{"logits": [1, 2}}')


def test_a_value_that_cannot_be_used_is_named_by_its_line(tmp_path, out):
    path = tmp_path / "a.jsonl"
    path.write_text('{"logits": [1.5, 2], "label": 0}\n\n{"logits": [NaN, 2], "label": 0}\n')
    refused(run(path, "--out", out), f"{path}: expected finite logits, got nan in line 3, class 0")


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
    told = " ".join(result.output.split())
    assert "soft is better calibrated than sharp" in told
    assert "Intervals are not corrected." in told
    assert "looks" not in told
    assert page.exists()


@pytest.mark.parametrize(("classes", "is_tested"), [(4, False), (5, False), (6, True)])
def test_top_5_accuracy_is_tested_only_with_more_than_five_classes(tmp_path, out, classes, is_tested):
    for method, sharpness in (("a", 1.0), ("b", 2.0)):
        for seed in range(3):
            logits, labels = predictions(seed=seed, sharpness=sharpness, classes=classes)
            saved(tmp_path / f"{method}-{seed}.npz", logits, labels)
    result = run("--pair", *(f"{method}={tmp_path}/{method}-*.npz" for method in "ab"), "--out", out)
    table = read_record(out)["tables"]["as given"]
    assert ("top5_accuracy" in table) == is_tested
    assert f"p corrected for {len(table)} metrics" in " ".join(result.output.split())


def test_an_interval_that_excludes_zero_without_a_low_corrected_p_is_explained(tmp_path, out):
    """Accuracy rises by 30 points on average; p is 0.01, but not after the correction."""
    right = {"a": (50, 55, 45), "b": (75, 88, 77)}
    for method, counts in right.items():
        for seed, count in enumerate(counts):
            logits = np.where(np.arange(100)[:, None] < count, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
            saved(tmp_path / f"{method}-{seed}.npz", logits, np.zeros(100, int))
    page = tmp_path / "pair.html"
    patterns = [f"{method}={tmp_path}/{method}-*.npz" for method in "ab"]
    told = " ".join(run("--pair", *patterns, "--out", out, "--page", page).output.split())
    row = read_record(out)["tables"]["as given"]["top1_accuracy"]
    assert row["interval"][0] > 0
    assert row["corrected_p"] > 0.05
    remark = "Accuracy looks better, inconclusive at n = 3: its interval excludes 0, but its corrected p"
    assert remark in told
    assert remark in page.read_text(encoding="utf-8")


def test_probabilities_given_as_logits_of_a_pair_are_told(tmp_path, out):
    scores, labels, _ = as_probabilities("multiclass")
    paths = [saved(tmp_path / f"{method}-{seed}.npz", scores, labels) for method in "ab" for seed in range(2)]
    page = tmp_path / "pair.html"
    result = run("--pair", *(f"{method}={tmp_path}/{method}-*.npz" for method in "ab"), "--out", out, "--page", page)
    told = " ".join(result.output.split())
    assert f"{', '.join(paths)}: every row lies in [0, 1] and sums to 1" in told
    assert read_record(out)["logits_that_look_like_probabilities"] == paths
    assert "pass --probabilities" in page.read_text(encoding="utf-8")


def test_a_pair_with_a_probability_of_zero_is_compared_as_given(tmp_path, out):
    """A float32 softmax underflows: then there is no logit to scale."""
    for method, sharpness in (("a", 1.0), ("b", 2.0)):
        for seed in range(3):
            logits, labels = predictions(seed=seed, sharpness=sharpness * (80 if seed == 2 else 1))
            saved(tmp_path / f"{method}-{seed}.npz", logits.float().softmax(1), labels, "probabilities")
    page = tmp_path / "pair.html"
    patterns = [f"{method}={tmp_path}/{method}-*.npz" for method in "ab"]
    result = run("--pair", *patterns, "--probabilities", "--out", out, "--page", page)
    assert result.exit_code == 0, result.output
    reason = f"{tmp_path}/a-2.npz: expected probabilities above 0 for a calibrator"
    assert f"No comparison after temperature scaling, cross-fitted in five folds: {reason}" in " ".join(
        result.output.split()
    )
    record = read_record(out)
    assert (list(record["tables"]), record["left_out_after_temperature"][: len(reason)]) == (["as given"], reason)
    text = page.read_text(encoding="utf-8")
    assert "No comparison after temperature scaling" in text
    assert "comparison-temperature.csv" not in text


def test_a_pair_of_single_maps_is_not_told_to_fit(tmp_path, out):
    logits, labels = (part.numpy() for part in predictions(samples=64, classes=3))
    for path in ("a-0", "a-1", "b-0", "b-1"):
        saved(tmp_path / f"{path}.npz", np.moveaxis(logits.reshape(1, 8, 8, 3), -1, 1), labels.reshape(1, 8, 8))
    patterns = [f"{method}={tmp_path}/{method}-*.npz" for method in "ab"]
    result = run("--pair", *patterns, "--classes-dim", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert "expected at least 2 samples to cross-fit a calibrator, got 1." in " ".join(result.output.split())
    assert "--fit" not in result.output


def test_a_file_with_a_probability_of_zero_is_evaluated_as_given(tmp_path, out):
    logits, labels = predictions()
    certain = saved(tmp_path / "p.npz", (90 * logits).float().softmax(1), labels, "probabilities")
    soft = saved(tmp_path / "q.npz", logits.softmax(1), labels, "probabilities")
    result = run(certain, soft, "--probabilities", "--fit", soft, "--out", out, "--resamples", 0)
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "p.npz: not evaluated after temperature scaling: expected probabilities above 0" in told
    record = read_record(out)
    assert [(file["path"], file["temperature"] is None) for file in record["files"]] == [
        (certain, True),
        (soft, True),
        (soft, False),
    ]
    assert list(record["left_out_after_temperature"]) == ["p.npz"]
    narrow = saved(tmp_path / "r.npz", logits[:, :3].softmax(1), labels.clamp(max=2), "probabilities")
    refused(run(narrow, "--probabilities", "--fit", soft, "--out", out), "expected 4 classes as in", "got 3")


def test_pairs_that_are_none_are_refused(tmp_path, out):
    baseline, candidate = seeds(tmp_path, "sharp", 2.5), seeds(tmp_path, "soft", 1.2, count=3)
    refused(run("--pair", baseline, candidate, "--out", out), "files of both methods for every seed", "for 11")
    refused(run("--pair", baseline, f"x={tmp_path}/none-*.npz", "--out", out), "none-*.npz: no such files")
    refused(run("--pair", baseline, "soft", "--out", out), "expected NAME=PATTERN with one *", "got soft")
    refused(run("--pair", baseline, baseline, "--out", out), "expected two different names, got sharp twice")
    refused(run("--pair", baseline, candidate, tmp_path / "soft-8.npz", "--out", out), "expected --pair alone", "quote")
    refused(run("--pair", baseline, candidate, "--explain", "--out", out), "expected --pair alone, got --fit or --ex")
    (tmp_path / "soft-11.npz").write_bytes((tmp_path / "soft-8.npz").read_bytes())
    refused(run("--pair", baseline, candidate, "--out", out), "the same labels in both files of a seed", "soft-11.npz")
    refused(run("--out", out), "expected at least one file")


def test_a_page_has_the_suffix_of_one(tmp_path, out):
    path = saved(tmp_path / "a.npz", *predictions())
    refused(run(path, "--out", out, "--page", tmp_path / "a.pdf"), "ends in .html for --page", "a.pdf")
    assert not out.exists()
