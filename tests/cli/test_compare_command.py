"""`orthograd compare`, as a newcomer runs it: small, real, and every number traced back to the stored logits."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from orthograd import calibration, statistics
from orthograd.cli.main import app
from orthograd.lab.comparison import plan
from orthograd.lab.jobs.store import Store
from orthograd.lab.training.config import Config

TINY = ["--seeds", "3", "--epochs", "6", "--workers", "1"]


def invoked(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    done = invoked(*TINY, "--out", folder)
    assert done.exit_code == 0, done.output
    return folder, done.output


@pytest.fixture
def copied(finished, tmp_path):
    """The finished comparison in a folder of one's own."""
    return shutil.copytree(finished[0], tmp_path / "copied")


def ece(predictions, images):
    return calibration.evaluate(predictions[f"logits.{images}"], predictions["labels"], metrics=["ece"]).ece


def test_every_number_comes_from_the_stored_logits(finished):
    folder, output = finished
    written = json.loads((folder / "comparison.json").read_text())
    by_method = {"baseline": {}, "orthograd": {}}
    for record in Store(folder / "runs").runs():
        run = Store(folder / "runs").get(record["config"])
        run.verify()
        predictions = run.read_tensors("predictions")
        by_method[record["config"]["method"]][record["config"]["seed"]] = predictions
        for name, metrics in record["metrics"].items():
            assert metrics["ece"] == pytest.approx(ece(predictions, name))
    eces = [[ece(by_method[method][seed], "clean") for seed in range(3)] for method in ("baseline", "orthograd")]
    expected = statistics.compare(*eces, better="lower")
    row = written["tables"]["clean"]["ece"]
    assert row["p"] == pytest.approx(expected.p)
    assert row["cohens_d"]["value"] == pytest.approx(expected.cohens_d.value)
    assert f"{expected.candidate.mean:.3f} against {expected.baseline.mean:.3f}" in " ".join(output.split())
    assert written["verdict"].split(":")[0] in " ".join(output.split())
    assert written["seeds"] == [0, 1, 2]


@pytest.mark.slow
def test_seeds_are_counted_from_where_they_are_asked_to(tmp_path):
    assert invoked("--seeds", 2, "--first-seed", 5, "--epochs", 1, "--workers", 1, "--out", tmp_path).exit_code == 0
    assert json.loads((tmp_path / "comparison.json").read_text())["seeds"] == [5, 6]
    page = (tmp_path / "report.html").read_text()
    assert "orthograd compare --seeds 2 --first-seed 5 --epochs 1" in page
    assert "seeds in a row" not in page


def test_tables_and_figures_are_written(finished):
    folder, _ = finished
    rows = list(csv.reader((folder / "comparison.csv").open()))
    assert rows[0][:3] == ["metric", "SGD", "⊥Grad"]
    assert [row[0] for row in rows[1:4]] == ["top1_accuracy", "top5_accuracy", "loss"]
    text = (folder / "comparison.md").read_text()
    for title in ("Clean test samples", "Corrupted test samples", "Clean test samples after temperature scaling"):
        assert f"## {title}\n" in text
    for name in ("reliability.png", "severity.png"):
        assert min(Image.open(folder / name).size) > 300


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex, of texlive-latex-recommended")
def test_latex_sets_the_tables_within_their_text(finished, tmp_path):
    tables = (finished[0] / "comparison.tex").read_text()
    assert tables.startswith("% needs \\usepackage{booktabs,graphicx}")
    lines = [r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}", tables, r"\end{document}"]
    (tmp_path / "paper.tex").write_text("\n".join(lines))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "Output written on paper.pdf" in told
    assert "Overfull" not in told
    assert "Missing character" not in told


def test_what_is_finished_is_not_done_again_and_more_seeds_are_added(finished, monkeypatch):
    folder, _ = finished
    monkeypatch.setattr(plan, "SECONDS", 0.1)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/record.json")}
    again = invoked(*TINY, "--out", folder)
    assert "6 runs, 6 of them done" in again.output
    assert "replaces" not in again.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    more = invoked("--seeds", 5, "--epochs", 6, "--workers", 1, "--out", folder, "--dry-run")
    assert "10 runs: 6 finished, 0 begun, 4 to do" in " ".join(more.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "resnet"], "expected a model among cnn, cnn_batchnorm, mlp"),
        (["--candidate", "dropout"], "expected a method among baseline"),
        (["--candidate", "baseline"], "expected two different methods"),
        (["--learning-rate", "0"], "learning_rate above 0"),
        (["--labels-per-class", "500"], "expected 500 training images of class"),
        (["--dataset", "no.such:thing"], "No module named"),
        (["--corruptions"], "expected images of bytes (n, 3, height, width), such as cifar10, got digits of float32"),
        (["--momentum", "1"], "expected momentum below 1"),
        (["--first-seed", "4294967296"], "--first-seed"),  # torch takes 32 bits of it: this is seed 0 again
        (["--seeds", "1000000000"], "--seeds"),
        (["--momentum", "0.5", "--optimizer", "adamw"], "expected no --momentum with the optimizer adamw"),
        (["--address", "auto"], "expected no --address without --executor ray"),
        (["--gpus-per-run", "0.5"], "expected no --gpus-per-run without --executor ray"),
    ],
)
def test_what_cannot_be_compared_is_named_before_anything_is_trained(tmp_path, arguments, words):
    done = invoked(*TINY, "--out", tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "out").exists()


def probabilities_in_evaluation(shape, classes):
    class Network(torch.nn.Linear):
        def forward(self, images):
            logits = super().forward(images.flatten(1))
            return logits if self.training else (logits, logits.softmax(1))

    return Network(shape[0] * shape[1] * shape[2], classes)


def lazy(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(classes))


def frozen(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes)).requires_grad_(False)


def without_parameters(shape, classes):
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((1, classes)), torch.nn.Flatten())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (probabilities_in_evaluation, "to give logits (8, 10) in evaluation, got tuple"),
        (lazy, "to have parameters whose shapes are known, got 1.weight without: use Linear instead of LazyLinear"),
        (frozen, "to have trainable parameters, got none that its logits depend on"),
        (without_parameters, "to have trainable parameters, got none that its logits depend on"),
    ],
)
def test_a_network_that_cannot_be_trained_or_evaluated_is_refused(tmp_path, model, words):
    done = invoked(*TINY, "--model", f"{__name__}:{model.__name__}", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--dry-run"]])
def test_a_missing_gpu_is_named(tmp_path, more):
    done = invoked(*TINY, "--device", "cuda", "--out", tmp_path / "out", *more)
    assert done.exit_code == 2
    assert "expected a GPU for these runs, got none" in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_to_is_named_once(tmp_path):
    (tmp_path / "file").touch()
    done = invoked(*TINY, "--out", tmp_path / "file")
    assert done.exit_code == 2
    assert "file" in done.output
    assert "Traceback" not in done.output


def test_a_run_without_its_predictions_is_named_with_what_to_do(copied):
    gone = next(iter(sorted(copied.glob("runs/*/predictions.safetensors"))))
    page = (copied / "report.html").read_bytes()
    gone.unlink()
    for more in ([], ["--dry-run"]):
        done = invoked(*TINY, "--out", copied, *more)
        assert done.exit_code == 2
        said = " ".join(done.output.split())
        assert f"{gone}: cannot be read: No such file or directory; delete {gone.parent} to do the run again" in said
    done = CliRunner().invoke(app, ["report", str(copied)])
    assert done.exit_code == 0  # from records alone, which it says
    assert (copied / "report.html").read_bytes() == page
    assert f"{gone} is missing: the report was made from the records only" in " ".join(done.output.split())


@pytest.mark.slow
def test_modules_are_found_in_the_current_folder_as_by_python_m(tmp_path):
    (tmp_path / "mine.py").write_text("from orthograd.lab.data.dataset import digits as data")
    # An installed script has its own folder, and not the current one, on its path.
    code = "import sys; sys.path.remove(''); from orthograd.cli.main import main; main()"
    command = [sys.executable, "-c", code, "compare", "--seeds", "2", "--workers", "2", "--dry-run", "--dataset"]
    done = subprocess.run([*command, "mine:data"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # the workers, which time runs, have found it too


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = " ".join(invoked(*TINY, "--dataset", "yours:data", "--out", "out").output.split())
    assert f"No module named 'yours' in the current folder {tmp_path} or on Python's path" in said


def test_an_earlier_report_of_other_settings_is_replaced_with_a_word(copied):
    other = ["--seeds", 2, "--epochs", 1, "--candidate", "focal"]
    said = " ".join(invoked(*TINY, *other, "--out", copied).output.split())
    assert "This replaces the earlier report, of other epochs, methods; its runs are kept." in said


def test_a_plan_times_both_methods_with_their_evaluation_in_processes(tmp_path, monkeypatch):
    seen = []

    def executed(configs, run, store, *, executor):
        seen.append(([config["method"] for config in configs], type(executor).__name__))
        return [{"seconds": 10.0, "passed": 0.0} for _ in configs]

    monkeypatch.setattr(plan, "execute", executed)
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    said = " ".join(invoked("--seeds", 3, "--workers", 4, "--dry-run", "--out", tmp_path).output.split())
    assert seen == [(["baseline", "orthograd"] * 2, "ProcessPool")]
    assert re.search(r"At least 10 s per run, 23\.?\d* s in all with 4 processes, if", said), "6 runs in 2 rounds of 4"
    assert "covers the start, training, checkpoints and evaluation, but not the report" in said


def test_a_timed_run_counts_every_image_and_every_set(tmp_path, monkeypatch):
    """With a clock that only moves when a step, a checkpoint or an evaluation moves it."""
    now = [0.0]
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])

    def takes(seconds, value=None):
        now[0] += seconds
        return value

    @contextmanager
    def training(config, task, gpu, *, keeper=None, report=lambda _: None):
        for epoch in range(config.epochs):
            takes(0.01 * len(task.labels))
            if keeper and epoch + 1 < config.epochs:
                keeper.save_checkpoint({}, {})
            report({})
        yield SimpleNamespace(model=None)

    class Folder:
        def save_checkpoint(self, tensors, state):
            takes(1.0)

    monkeypatch.setattr(plan, "training", training)
    monkeypatch.setattr(plan, "predicted", lambda model, task, config: takes(len(task.dataset.test_labels)))
    monkeypatch.setattr(plan, "evaluation", lambda predictions: None)
    monkeypatch.setattr(plan, "diagnosed", lambda *_: None)
    monkeypatch.setattr(plan, "TESTED", 400)
    monkeypatch.setattr(plan, "SECONDS", 5.12)
    config = Config(labels_per_class=40, epochs=100)
    # 4 of 13 batches: 4 epochs of 1.28 s and 3 checkpoints are timed, and 399 of 797 test images.
    expected = 100 * 0.01 * 400 + 100 * 3 / 4 * 1.0 + 797
    assert plan.timed_run(config.as_dict(), Folder(), None)["seconds"] == pytest.approx(expected)
    corrupted = dataclasses.replace(config, shifts="cifar10c").as_dict()
    assert plan.timed_run(corrupted, Folder(), None)["seconds"] == pytest.approx(expected + 75 * 797)


def test_a_plan_gives_long_times_in_hours(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "SECONDS", 0.1)
    done = invoked("--seeds", "2", "--epochs", "100000000", "--workers", "1", "--dry-run", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    # A thousand days have a comma.
    assert re.search(
        r"At least [0-9.,]+ days per run, [0-9.,]+ days in all with 1 process, if", " ".join(done.output.split())
    )


def test_a_plan_times_the_precision_of_the_runs(monkeypatch):
    seen = []

    @contextmanager
    def training(config, task, gpu, *, report):
        seen.append((gpu.precision, torch.backends.cudnn.deterministic, len(task.labels)))
        for epoch in range(config.epochs):
            report({"epoch": epoch})
        yield

    monkeypatch.setattr(plan, "training", training)
    plan.seconds_per_run(Config(device="cuda", precision="bf16"))
    assert seen == [("bf16", True, 100)], "on a GPU, whole epochs"


def test_a_folder_is_printed_as_it_is_named(finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "[bold]a[/b]:fire:")
    done = invoked(*TINY, "--out", folder)
    assert done.exit_code == 0, done.output
    assert f"6 runs, 6 of them done, in {folder / 'runs'}" in done.output.replace("\n", "")
    assert f"Report: {folder / 'report.html'}" in done.output.replace("\n", "")


def test_a_plan_for_a_cluster_does_not_count_the_cores_of_this_machine(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    done = invoked("--seeds", 2, "--epochs", 1, "--executor", "ray", "--dry-run", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "concurrent runs take less" in " ".join(done.output.split())
    assert "process" not in done.output


def test_training_that_diverges_is_called_so(tmp_path):
    done = invoked(*TINY, "--learning-rate", "100000", "--out", tmp_path)
    assert done.exit_code == 1
    assert "training diverged: the loss of epoch 1 is nan, at learning_rate 100000" in done.output


def test_an_edited_record_is_named_and_refused(copied):
    record = next(iter(sorted(copied.glob("runs/*/record.json"))))
    record.write_text(record.read_text().replace('"batch_size": 32', '"batch_size": 33'))
    done = invoked(*TINY, "--out", copied)
    assert done.exit_code == 2
    assert str(record) in done.output.replace("\n", "")


@pytest.mark.slow
@pytest.mark.usefixtures("frost")
def test_the_path_of_cifar10_works_on_a_few_images(tmp_path, monkeypatch):
    """Bytes for pixels, crops and flips, and all 15 corruptions at five severities."""
    (tmp_path / "few.py").write_text(
        "import torch\n"
        "from orthograd.lab.data import Dataset\n"
        "def data():\n"
        "    noise = torch.rand(80, 3, 32, 32, generator=torch.Generator().manual_seed(0))\n"
        "    images = (256 * noise).to(torch.uint8)\n"
        "    labels = torch.arange(80) % 2\n"
        "    return Dataset('few', images, labels, images[:20], labels[:20], 2, (0.5,) * 3, (0.25,) * 3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    images = ["--dataset", "few:data", "--labels-per-class", 8, "--augmentation", "crop_flip", "--corruptions"]
    runs = ["--model", "cnn_batchnorm", "--epochs", 1, "--seeds", 2, "--workers", 1]
    done = invoked(*images, *runs, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    records = list(Store(tmp_path / "out" / "runs").runs())
    assert len(records) == 4
    for record in records:
        assert len(record["metrics"]) == 1 + 15 * 5
        assert record["shifts"] == "made"
    assert "--corruptions" in (tmp_path / "out" / "report.html").read_text()
