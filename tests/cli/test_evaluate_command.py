from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from typer.testing import CliRunner

from orthograd import __version__, calibration
from orthograd.cli.main import app


def predictions(*, samples: int = 300, classes: int = 4, sharpness: float = 2.5, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).flatten()
    return sharpness * logits, labels


def saved(path, logits, labels, name="logits"):
    np.savez(path, **{name: np.asarray(logits), "labels": np.asarray(labels)})
    return str(path)


def run(*arguments, width=200):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, ["evaluate", *map(str, arguments)])


def no_constant(name):
    raise AssertionError(f"{name} is not JSON")


def read_record(folder):
    return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"), parse_constant=no_constant)


def refused(result, *words):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    (line,) = result.stderr.strip().splitlines()
    for word in words:
        assert word in line


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def expected_error(probabilities, labels, bins=10):
    """ECE in numpy, one bin at a time."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    total = 0.0
    for lower in np.arange(bins) / bins:
        inside = (confidence > lower) & (confidence <= lower + 1 / bins)
        total += abs(right[inside].sum() - confidence[inside].sum())
    return total / len(labels)


def test_a_digit_classifier_is_measured_as_scikit_learn_and_numpy_do(tmp_path, out):
    images, digits = load_digits(return_X_y=True)
    images /= 16
    model = LogisticRegression(max_iter=200).fit(images[:900], digits[:900])
    logits, truth = model.decision_function(images[900:]), digits[900:]
    result = run(saved(tmp_path / "digits.npz", logits, truth), "--out", out, "--resamples", 50)
    assert result.exit_code == 0, result.output
    measured = read_record(out)["files"][0]["metrics"]
    probabilities = model.predict_proba(images[900:])
    assert measured["top1_accuracy"] == pytest.approx(100 * accuracy_score(truth, probabilities.argmax(1)), abs=1e-4)
    assert measured["loss"] == pytest.approx(log_loss(truth, probabilities), abs=1e-6)
    assert measured["brier"] == pytest.approx(brier_score_loss(truth, probabilities, scale_by_half=False), abs=1e-6)
    assert measured["ece"] == pytest.approx(expected_error(probabilities, truth), abs=1e-6)


def test_numbers_are_those_of_the_library(tmp_path, out):
    logits, labels = predictions()
    assert run(saved(tmp_path / "a.npz", logits, labels), "--out", out, "--resamples", 40, "--seed", 3).exit_code == 0
    whole = read_record(out)
    (file,) = whole["files"]
    expected = calibration.evaluate(logits, labels).as_dict()
    bounds = calibration.intervals(logits, labels, resamples=40, seed=3)
    assert file["metrics"] == expected["metrics"]
    assert file["conventions"] == expected["conventions"]
    assert file["intervals"] == {name: list(bound) for name, bound in bounds.items()}
    assert file["path"] == str(tmp_path / "a.npz")
    assert (whole["orthograd"], whole["torch"]) == (__version__, torch.__version__)
    assert (whole["bins"], whole["resamples"], whole["seed"]) == (10, 40, 3)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv"])
def test_every_format_gives_the_same_numbers(tmp_path, out, suffix):
    logits, labels = predictions(samples=60)
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        saved(path, logits, labels)
    elif suffix == ".safetensors":
        save_file({"logits": logits.contiguous(), "labels": labels}, path)
    else:
        rows = [",".join(map(repr, [*row, label])) for row, label in zip(logits.tolist(), labels.tolist(), strict=True)]
        path.write_text("\n".join(["p0,p1,p2,p3,label", *rows]))
    assert run(path, "--out", out, "--resamples", 0).exit_code == 0
    assert read_record(out)["files"][0]["metrics"] == calibration.evaluate(logits, labels).as_dict()["metrics"]


def test_bins_and_keys_are_options(tmp_path, out):
    logits, labels = predictions()
    np.savez(tmp_path / "a.npz", output=logits.numpy(), truth=labels.numpy())
    options = ["--scores-key", "output", "--labels-key", "truth", "--bins", 15, "--resamples", 0, "--out", out]
    assert run(tmp_path / "a.npz", *options).exit_code == 0
    assert read_record(out)["files"][0]["metrics"]["ece"] == calibration.evaluate(logits, labels, bins=15).ece


def test_the_table_has_a_row_for_each_metric_with_its_interval_and_chance(tmp_path, out):
    logits, labels = predictions()
    result = run(saved(tmp_path / "a.npz", logits, labels), "--out", out, "--resamples", 40)
    rows = [line[2:].split()[0] for line in result.output.splitlines() if line.startswith("│ ")]
    assert [row for row in rows if row in calibration.ALL] == list(calibration.ALL)
    metrics = calibration.evaluate(logits, labels)
    low, high = calibration.intervals(logits, labels, resamples=40)["ece"]
    assert f"{metrics.ece:.4f} [{low:.4f}, {high:.4f}]" in result.output
    assert f"by chance {metrics.ece_by_chance:.4f}" in result.output
    assert f"(95%: {metrics.ece_by_chance_limit:.4f})" in result.output
    assert "300 samples, 4 classes; 10 bins." in result.output
    assert str(out / "evaluation.json") in result.output.replace("\n", "")
    assert "mean over samples of the sum over classes" not in result.output


def test_files_of_different_sizes_are_told_apart(tmp_path, out):
    large, small = (saved(tmp_path / f"{name}.npz", *predictions(samples=n)) for name, n in (("a", 900), ("b", 80)))
    told = " ".join(run(large, small, "--out", out, "--resamples", 0).output.split())
    assert "a.npz: 900 samples, 4 classes; b.npz: 80 samples, 4 classes; 10 bins." in told


def test_explain_says_what_each_number_means(tmp_path, out):
    result = run(saved(tmp_path / "a.npz", *predictions()), "--out", out, "--resamples", 0, "--explain")
    assert "brier: mean over samples of the sum over classes of (p − one-hot label)²" in result.output


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_every_number_is_printed_whole_at_any_width(tmp_path, out, width):
    files = [saved(tmp_path / f"{i}.npz", *predictions(sharpness=1 + i)) for i in range(3)]
    result = run(*files, "--out", out, "--resamples", 20, width=width)
    for file in read_record(out)["files"]:
        assert f"{file['metrics']['brier']:.4f}" in result.output
    assert max(map(len, result.output.splitlines()[:20])) <= max(width, 60)


def test_files_with_the_same_labels_are_compared_with_the_first(tmp_path, out):
    logits, labels = predictions(samples=500)
    other = 0.4 * logits
    files = [saved(tmp_path / "a.npz", logits, labels), saved(tmp_path / "b.npz", other, labels)]
    result = run(*files, "--out", out, "--resamples", 50)
    (difference,) = read_record(out)["differences"]
    first, second = calibration.evaluate(logits, labels), calibration.evaluate(other, labels)
    assert (difference["path"], difference["minus"]) == (files[1], files[0])
    assert difference["metrics"]["loss"] == pytest.approx(second.loss - first.loss, abs=1e-12)
    bounds = calibration.difference_intervals(other, logits, labels, resamples=50)
    assert difference["intervals"] == {name: list(bound) for name, bound in bounds.items()}
    assert {"loss", "ece", "max_softmax"} <= set(difference["excludes_zero"])
    assert "top1_accuracy" not in difference["excludes_zero"]
    assert f"* better {second.loss - first.loss:+.4f}" in result.output
    assert f"* different {second.max_softmax - first.max_softmax:+.4f}" in result.output
    assert run(*reversed(files), "--out", out, "--resamples", 50).output.count("* worse") > 2


def test_files_with_other_labels_are_not_compared(tmp_path, out):
    files = [saved(tmp_path / f"{seed}.npz", *predictions(seed=seed)) for seed in (0, 1)]
    result = run(*files, "--out", out, "--resamples", 0)
    assert read_record(out)["differences"] == []
    assert "Only files with the same labels as 0.npz are compared" in result.output


def test_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path, out):
    files = []
    for folder in ("sgd", "ours"):
        (tmp_path / folder).mkdir()
        files.append(saved(tmp_path / folder / "test[1].npz", *predictions()))
    result = run(*files, "--out", out, "--resamples", 0, width=300)
    assert result.exit_code == 0
    assert os.path.join("ours", "test[1].npz") in result.output.replace("┃", "").replace(" ", "").replace("\n", "")


def test_a_temperature_is_fitted_on_other_samples_and_certified(tmp_path, out):
    logits, labels = predictions()
    held_out, truth = predictions(seed=1, samples=400)
    other = saved(tmp_path / "held-out.npz", held_out, truth)
    result = run(saved(tmp_path / "a.npz", logits, labels), "--fit-temperature", other, "--out", out, "--resamples", 20)
    plain, scaled = read_record(out)["files"]
    scaling = calibration.TemperatureScaling().fit(held_out, truth)
    assert plain["temperature"] is None
    assert scaled["temperature"]["value"] == float(scaling.temperature)
    assert scaled["temperature"]["fitted_on"] == other
    assert scaled["temperature"]["certificate"]["low"] <= float(scaling.temperature)
    assert scaled["metrics"] == calibration.evaluate(scaling(logits), labels).as_dict()["metrics"]
    assert scaled["metrics"]["loss"] < plain["metrics"]["loss"]
    assert f"a.npz, T={float(scaling.temperature):.2f}" in result.output
    assert str(scaling.certificate) in " ".join(result.output.split())


def test_each_file_can_have_its_own_temperature_and_like_is_compared_with_like(tmp_path, out):
    logits, labels = predictions()
    held_out, truth = predictions(seed=1, samples=400)
    files = [saved(tmp_path / f"{i}.npz", scale * logits, labels) for i, scale in enumerate((1, 2))]
    others = [saved(tmp_path / f"held-{i}.npz", scale * held_out, truth) for i, scale in enumerate((1, 2))]
    options = [part for other in others for part in ("--fit-temperature", other)]
    result = run(*files, *options, "--out", out, "--resamples", 20)
    record = read_record(out)
    temperatures = [file["temperature"]["value"] for file in record["files"] if file["temperature"]]
    assert temperatures[1] == pytest.approx(2 * temperatures[0])
    assert [difference["is_after_temperature"] for difference in record["differences"]] == [False, True]
    assert record["differences"][1]["metrics"]["loss"] == pytest.approx(0, abs=1e-9)
    assert "One temperature for several" not in result.output
    shared = run(*files, *options[:2], "--out", out, "--resamples", 0)
    assert "One temperature for several files" in shared.output
    third = saved(tmp_path / "third.npz", logits, labels)
    refused(run(*files, third, *options, "--out", out), "one for each of 3 files, got 2")


def test_an_endless_temperature_is_still_strict_json(tmp_path, out):
    logits, _ = predictions(sharpness=1.0)
    perfect = saved(tmp_path / "perfect.npz", logits, logits.argmax(1))
    result = run(perfect, "--fit-temperature", perfect, "--out", out, "--resamples", 0)
    assert result.exit_code == 0, result.output
    file = read_record(out)["files"][1]
    assert file["temperature"]["certificate"]["at_zero"] is True
    assert "the loss keeps falling" in " ".join(result.output.split())
    assert "fitted on the samples it is" in result.output
    opposite = saved(tmp_path / "opposite.npz", -logits, logits.argmax(1))
    assert run(opposite, "--fit-temperature", opposite, "--out", out, "--resamples", 0).exit_code == 0
    assert read_record(out)["files"][1]["temperature"]["certificate"]["high"] == "inf"


def test_probabilities_give_what_their_logits_do(tmp_path, out):
    logits, labels = predictions()
    held_out, truth = predictions(seed=1, samples=400)
    path = saved(tmp_path / "p.npz", logits.softmax(1), labels, "probabilities")
    other = saved(tmp_path / "q.npz", held_out.softmax(1), truth, "probabilities")
    result = run(path, "--probabilities", "--fit-temperature", other, "--out", out, "--resamples", 20)
    assert result.exit_code == 0, result.output
    plain, scaled = (file["metrics"] for file in read_record(out)["files"])
    scaling = calibration.TemperatureScaling().fit(held_out, truth)
    for measured, expected in ((plain, logits), (scaled, scaling(logits))):
        of_logits = calibration.evaluate(expected, labels)
        assert measured["loss"] == pytest.approx(of_logits.loss, abs=1e-9)
        assert measured["ece"] == pytest.approx(of_logits.ece, abs=1e-9)
        assert measured["max_logit"] is None
    assert "needs logits" in result.output


def test_an_infinite_loss_is_printed_and_strict_json(tmp_path, out):
    path = saved(tmp_path / "p.npz", [[1.0, 0.0], [0.5, 0.5], [0.9, 0.1]], [1, 0, 0], "probabilities")
    other = saved(tmp_path / "q.npz", [[0.9, 0.1], [0.5, 0.5], [0.9, 0.1]], [1, 0, 0], "probabilities")
    result = run(path, other, "--probabilities", "--out", out, "--resamples", 20)
    assert result.exit_code == 0, result.output
    assert read_record(out)["files"][0]["metrics"]["loss"] == "inf"
    assert "inf nats" in result.output
    refused(
        run(path, "--probabilities", "--fit-temperature", path, "--out", out),
        "p.npz: expected probabilities above 0 for a calibrator, got 0 in row 0",
    )


def test_the_figure_is_an_image_of_the_right_size_and_the_same_twice(tmp_path, out):
    path = saved(tmp_path / "a.npz", *predictions())
    pictures = []
    for _ in range(2):
        assert run(path, "--out", out, "--resamples", 0).exit_code == 0
        pictures.append((out / "reliability.png").read_bytes())
    assert pictures[0] == pictures[1]
    with Image.open(out / "reliability.png") as image:
        image.load()
        assert image.format == "PNG"
        assert image.size == (650, 898)  # 3.25 inches, the width of a column, at 200 dots an inch
    assert sorted(path.name for path in out.iterdir()) == ["evaluation.json", "reliability.png"]


def tabled(path, names, logits, labels):
    rows = zip(logits.tolist(), labels.tolist(), strict=True)
    path.write_text("\n".join([",".join([*names, "label"]), *(",".join(map(str, [*row, y])) for row, y in rows)]))
    return str(path)


def test_classes_sorted_as_text_are_put_in_order_and_the_first_line_says_so(tmp_path, out):
    logits, labels = predictions(classes=12)
    names = sorted(f"class_{number}" for number in range(12))
    order = torch.tensor([int(name.removeprefix("class_")) for name in names])
    path = tabled(tmp_path / "a.csv", names, logits[:, order], labels)
    result = run(path, "--out", out, "--resamples", 0)
    assert result.output.splitlines()[0] == (
        "a.csv: classes 'class_0', 'class_1' … 'class_11' (12 columns, sorted by their numbers), label 'label'."
    )
    (file,) = read_record(out)["files"]
    assert file["metrics"] == calibration.evaluate(logits, labels).as_dict()["metrics"]
    assert file["source"] == result.output.splitlines()[0].removeprefix("a.csv: ").removesuffix(".")


def test_columns_that_are_no_classes_are_refused_until_the_classes_are_named(tmp_path, out):
    logits, labels = predictions(classes=2)
    path = tabled(tmp_path / "a.csv", ["id", "cat", "dog"], torch.cat([torch.arange(300)[:, None], logits], 1), labels)
    refused(run(path, "--out", out), "a.csv: expected classes numbered from 0", "got 'id', 'cat', 'dog'", "--classes")
    result = run(path, "--classes", "cat,dog", "--out", out, "--resamples", 0)
    assert result.output.splitlines()[0] == "a.csv: classes 'cat', 'dog' (2 columns), label 'label'."
    assert read_record(out)["files"][0]["metrics"] == calibration.evaluate(logits, labels).as_dict()["metrics"]


def test_the_first_lines_name_the_arrays_of_every_file(tmp_path, out):
    files = [saved(tmp_path / f"{seed}.npz", *predictions(seed=seed)) for seed in (0, 1)]
    table = tabled(tmp_path / "2.csv", ["0", "1", "2", "3"], *predictions())
    lines = run(files[0], table, "--fit-temperature", files[1], "--out", out, "--resamples", 0).output.splitlines()
    assert lines[0] == "0.npz, 1.npz: logits 'logits', labels 'labels'."
    assert lines[1] == "2.csv: classes '0', '1', '2', '3' (4 columns), label 'label'."


@pytest.mark.filterwarnings("error::orthograd.calibration.InputWarning")
def test_probabilities_given_as_logits_are_told_in_the_notes_and_the_record(tmp_path, out):
    logits, labels = predictions()
    probabilities = saved(tmp_path / "p.npz", logits.softmax(1), labels)
    result = run(probabilities, "--out", out, "--resamples", 20)
    note = "p.npz: every row lies in [0, 1] and sums to 1, as probabilities do, but it is evaluated as logits"
    assert note in " ".join(result.output.split())
    assert "pass --probabilities and --scores-key logits." in " ".join(result.output.split())
    assert read_record(out)["files"][0]["metrics"]["ece"] == pytest.approx(
        expected_error(logits.softmax(1).softmax(1).numpy(), labels.numpy()), abs=1e-6
    )
    assert read_record(out)["logits_that_look_like_probabilities"] == [probabilities]
    plain = saved(tmp_path / "z.npz", logits, labels)
    held_out = run(plain, "--fit-temperature", probabilities, "--out", out, "--resamples", 0)
    assert note in " ".join(held_out.output.split())
    result = run(plain, "--out", out, "--resamples", 20)
    assert "as probabilities do" not in result.output
    assert read_record(out)["logits_that_look_like_probabilities"] == []
    result = run(probabilities, "--probabilities", "--scores-key", "logits", "--out", out, "--resamples", 0)
    assert "as probabilities do" not in result.output


def test_a_table_of_probabilities_is_not_told_of_keys_that_it_has_not(tmp_path, out):
    logits, labels = predictions()
    table = tabled(tmp_path / "p.csv", ["0", "1", "2", "3"], logits.softmax(1), labels)
    told = " ".join(run(table, "--out", out, "--resamples", 0).output.split())
    assert "pass --probabilities." in told
    assert "--scores-key" not in told


def test_accuracies_have_wilson_intervals_and_what_a_bootstrap_cannot_know_is_said(tmp_path, out):
    logits, labels = 9 * torch.eye(10, dtype=torch.float64).repeat(2, 1), torch.arange(10).repeat(2)
    result = run(saved(tmp_path / "a.npz", logits, labels), "--out", out, "--resamples", 20)
    (file,) = read_record(out)["files"]
    for name in ("top1_accuracy", "top5_accuracy"):
        assert file["intervals"][name] == [pytest.approx(100 * 20 / (20 + 1.959963984540054**2)), 100]
    assert set(file["intervals"]) == {"top1_accuracy", "top5_accuracy"}
    told = " ".join(result.output.split())
    assert "[83.89, 100.00]" in told
    assert "Wilson intervals" in told
    assert "a.npz: no interval for loss, ece, brier" in told
    logits[0, 0] = 3.0
    result = run(saved(tmp_path / "a.npz", logits, labels), "--out", out, "--resamples", 20)
    told = " ".join(result.output.split())
    assert "a.npz: every prediction is right" in told
    assert "too narrow" in told


def test_a_difference_that_is_the_same_in_every_resample_has_no_interval(tmp_path, out):
    logits, labels = predictions()
    files = [saved(tmp_path / f"{name}.npz", logits, labels) for name in "ab"]
    result = run(*files, "--out", out, "--resamples", 20)
    assert result.exit_code == 0, result.output
    assert read_record(out)["differences"][0]["intervals"] == {}
    assert "b.npz − a.npz: no interval for top1_accuracy" in " ".join(result.output.split())
    assert "the 0 metrics" not in result.output


def test_a_temperature_fitted_on_a_copy_of_the_samples_is_told(tmp_path, out):
    logits, labels = predictions()
    path = saved(tmp_path / "a.npz", logits, labels)
    copy = saved(tmp_path / "b.npz", logits, labels)
    result = run(path, "--fit-temperature", copy, "--out", out, "--resamples", 0)
    assert "fitted on the samples it is" in result.output
    other = saved(tmp_path / "c.npz", 2 * logits, labels)
    result = run(path, "--fit-temperature", other, "--out", out, "--resamples", 0)
    assert "fitted on the samples it is" not in result.output
