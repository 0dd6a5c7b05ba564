"""`orthograd reproduce`, for real and tiny on the CPU: runs, resumes, says what it is not, and writes its files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from orthograd.cli import reproduction
from orthograd.cli.reproduce import reproduce
from orthograd.cli.reproduction import Request
from orthograd.lab.jobs.bundles import read_bundles, write_bundle
from orthograd.lab.jobs.files import config_hash
from orthograd.lab.jobs.jobs import ExperimentError, Failure
from orthograd.lab.jobs.store import Store
from orthograd.paper.plan import Scale, named, runs_in_order
from tests.paper.made_runs import made_table1

DATA = "tests.paper.small_images:small"
TINY = [
    "--model",
    "mlp",
    "--labels-per-class",
    "4",
    "--epochs",
    "1",
    "--seeds",
    "2",
    "--device",
    "cpu",
    "--dataset",
    DATA,
]
TINY += ["--workers", "1"]
app = typer.Typer()
app.command()(reproduce)


def invoked(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture(scope="module", autouse=True)
def _no_checkout(tmp_path_factory):
    """Outside of a checkout: there, each command would read all of its records for an estimate of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    code, said = invoked("table1", *TINY, "--shifts", "simple", "--out", folder)
    assert code == 0, said
    return folder, said


def test_runs_are_done_and_files_are_made(finished):
    folder, said = finished
    assert "table1: 4 runs, 0 of them done." in said
    assert "GPU time of the others: " in said
    assert "Not the paper's setting: seeds 2, epochs 1, model mlp" in said
    records = list(Store(folder / "runs").runs())
    assert sorted((run["config"]["method"], run["config"]["seed"]) for run in records) == [
        ("baseline", 0),
        ("baseline", 1),
        ("orthograd", 0),
        ("orthograd", 1),
    ]
    assert all(len(run["metrics"]) == 26 for run in records)
    text = (folder / "tables" / "table1.md").read_text()
    mean = sum(run["metrics"]["clean"]["ece"] for run in records if run["config"]["method"] == "baseline") / 2
    assert f"| clean | ECE ↓ | {mean:.4f} ± " in text
    assert f"| ECE ↓ | 0.168 | {mean:.4f} ± " in text
    page = (folder / "reproduction.html").read_text()
    assert "A smaller try, not the paper's setting: seeds 2" in page
    assert (folder / "figures" / "table1-reliability-clean.svg").exists()


def test_what_is_finished_is_not_done_again_whichever_experiment_asks(finished):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/record.json")}
    page = (folder / "reproduction.html").read_bytes()
    code, said = invoked("temperature", *TINY, "--shifts", "simple", "--out", folder)
    assert code == 0
    assert "temperature: 4 runs, 4 of them done." in said
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/record.json")} == before
    assert (folder / "reproduction.html").read_bytes() == page
    assert (folder / "tables" / "temperature.md").exists()


def test_a_plan_shows_what_is_done_shared_and_missing(finished, tmp_path):
    folder, _ = finished
    code, said = invoked("paper", *TINY, "--shifts", "simple", "--out", folder, "--dry-run")
    assert code == 0
    # At this scale the network of every setting is the same, so only the method without renormalization is new.
    assert "2 runs to do. GPU time:" in said
    assert "clocks of finished runs" in said
    code, said = invoked("all", "--out", tmp_path / "none", "--dry-run")
    assert code == 0
    assert "A checkout that has docs/results/reproduction gives better estimates" in said
    runs = sum(map(len, runs_in_order(named("all"), Scale()).values()))
    assert runs > 300
    assert f"{runs} runs to do. GPU time: ? for {runs} runs (not measured yet)" in said
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_in_a_checkout_a_plan_knows_the_gpu_minutes_of_all_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    code, said = invoked("all", "--out", tmp_path / "none", "--dry-run")
    assert code == 0
    minutes = re.search(r"runs to do\. GPU time: ([\d.]+) minutes \(", said)
    assert minutes is not None
    assert 60 < float(minutes[1]) < 600


def test_a_plan_of_precisions_takes_the_runs_of_table_1_as_they_are(tmp_path):
    runs = made_table1()
    for method in ("baseline", "orthograd"):
        chosen = [run for run in runs if run["config"]["method"] == method]
        write_bundle(tmp_path / "records" / f"resnet18-{method}.json", chosen)
    given = ["--out", tmp_path / "out", "--export", tmp_path / "records", "--dry-run"]
    code, said = invoked("precision", *given)
    assert code == 0, said
    assert "50 runs to do." in said
    code, said = invoked("precision", "--out", tmp_path / "out", "--dry-run")
    assert "90 runs to do." in said


def test_experiments_in_a_row_on_the_same_network_are_one_group(tmp_path):
    def groups(*names):
        request = Request(names, Scale(seeds=2), tmp_path)
        missing = request.missing(request.evidence())
        return [(group[0].model, group[0].precision, len(group)) for group in missing]

    assert groups("table1", "renormalization") == [("resnet18", "tf32", 6)]
    assert groups("table1", "wideresnet") == [("resnet18", "tf32", 4), ("wide_resnet28_10", "bf16", 4)]
    assert groups("precision") == [("resnet18", name, 4) for name in ("bf16", "float32", "tf32")]
    # bf16 with the next experiment would do; but what was asked for first is done first.
    assert groups("precision", "layers")[-1] == ("resnet18", "bf16", 8)


def test_minutes_end_training_and_the_next_call_goes_on(tmp_path):
    arguments = ["table1", *TINY, "--shifts", "none", "--out", tmp_path]
    code, said = invoked(*arguments, "--minutes", "0")
    assert code == reproduction.INCOMPLETE
    assert "The time limit was reached" in said
    assert (tmp_path / "reproduction.md").exists()
    assert list(Store(tmp_path / "runs").runs()) == []
    code, said = invoked(*arguments)
    assert code == 0
    assert len(list(Store(tmp_path / "runs").runs())) == 4


def test_exported_records_count_as_done_and_everything_is_made_from_them_alone(tmp_path):
    runs = made_table1()
    for method in ("baseline", "orthograd"):
        path = tmp_path / "records" / f"resnet18-{method}.json"
        write_bundle(path, [run for run in runs if run["config"]["method"] == method and run["config"]["seed"] < 19])
    extra = next(run for run in runs if run["config"]["seed"] == 19 and run["config"]["method"] == "baseline")
    folder = Store(tmp_path / "out" / "runs").get(extra["config"])
    with folder.claim():
        folder.finish({name: part for name, part in extra.items() if name not in ("config", "hash", "files", "sha256")})
    given = ["table1", "--out", tmp_path / "out", "--export", tmp_path / "records"]
    code, said = invoked(*given, "--rebuild")
    assert code == 0, said
    assert "table1: 40 runs, 39 of them done." in said
    assert len(read_bundles(tmp_path / "records")) == 39
    assert "39 of 40 planned runs" in (tmp_path / "out" / "tables" / "table1.md").read_text()
    code, said = invoked("table1", "--seeds", "19", *given[1:])
    assert code == 0, said  # nothing to train, so no GPU is needed; and no seed is lost
    assert len(read_bundles(tmp_path / "records")) == 39


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table2"], "expected an experiment among table1"),
        (
            ["table1", *TINY, "--export", "records"],
            "expected the paper's setting, on a GPU, for records to export",
        ),
        (["table1", "--dry-run", "--precision", "tf32", "--export", "records"], "to export, got tf32 for all"),
        (["table1", "--dry-run", "--export", __file__], "expected a folder of records, got a file"),
        (["table1", "--dry-run", "--model", "resnet"], "expected a model among cnn"),
        (["table1", "--rebuild", "--export", "nowhere"], "expected records of finished runs in"),
        (["table1", *TINY, "--model", "resnet"], "expected a model among cnn"),
        (["table1", *TINY, "--shifts", "fog"], "expected shifts among none"),
        (
            ["precision", *TINY],
            "expected a GPU and no --precision where float32, tf32 and bf16 are compared, got a CPU",
        ),
        (["precision", "--precision", "bf16", "--dry-run"], "are compared, got --precision bf16"),
        (["table1", *TINY, "--precision", "bf16"], "expected precision float32 on the CPU, got bf16"),
        (["table1", "--dry-run", "--address", "auto"], "expected no --address without --executor ray"),
        (["table1", *TINY, "--gpus-per-run", "0.5"], "expected no --gpus-per-run without --executor ray"),
        (["table1", *TINY, "--rebuild"], "expected no --workers with --rebuild, which trains nothing"),
        (["table1", "--rebuild", "--minutes", "3"], "expected no --minutes with --rebuild, which trains nothing"),
        (["table1", "--rebuild", "--dry-run"], "expected no --dry-run with --rebuild, which trains nothing"),
    ],
)
def test_what_cannot_be_done_is_named_before_anything_is_trained(tmp_path, arguments, words):
    code, said = invoked(*arguments, "--out", tmp_path / "out")
    assert code == 2
    assert words in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Run the same command again to resume"),
        (ExperimentError([Failure({"seed": 1}, "burnt")], 4), 1, "1 of 4 runs failed"),
    ],
)
def test_stops_and_failures_have_the_exit_codes_of_compare(tmp_path, monkeypatch, error, code, words):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(reproduction, "executed", broken)
    exit_code, said = invoked("table1", *TINY, "--shifts", "none", "--out", tmp_path)
    assert exit_code == code
    assert words in said
    assert (tmp_path / "reproduction.html").exists() == (code == 1)  # after failures of what there is


BREAKING = """
import math
from pathlib import Path
import torch

def model(shape, classes):
    if torch.initial_seed() == 1 and not Path(__file__).with_name("mended").exists():
        raise ArithmeticError("seed 1 breaks")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))
"""


def test_a_failed_run_keeps_no_other_experiment_from_being_done(tmp_path, monkeypatch):
    (tmp_path / "breaking.py").write_text(BREAKING)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["table1", "adamw", *TINY, "--model", "breaking:model", "--shifts", "none", "--out", tmp_path / "out"]
    code, said = invoked(*given)
    assert code == 1
    assert "4 of 8 runs failed" in said
    done = [run["config"]["optimizer"] for run in Store(tmp_path / "out" / "runs").runs()]
    assert sorted(done) == ["adamw", "adamw", "sgd", "sgd"]
    assert (tmp_path / "out" / "reproduction.html").exists()
    (tmp_path / "mended").touch()
    assert invoked(*given)[0] == 0
    assert len(list(Store(tmp_path / "out" / "runs").runs())) == 8


def test_importing_the_command_does_not_wait_for_torch():
    code = "import sys; import orthograd.cli.reproduce; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named(tmp_path):
    given = ["--dataset", DATA, "--labels-per-class", "4", "--seeds", "2", "--out", tmp_path / "out"]
    code, said = invoked("table1", *given)
    assert code == 2
    assert "expected a GPU for these runs, got none" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("frost")
def test_with_the_corruptions_of_cifar10c(tmp_path):
    code, said = invoked("corruption", *TINY, "--out", tmp_path)
    assert code == 0, said
    records = list(Store(tmp_path / "runs").runs())
    assert len(records) == 4
    assert all(len(run["metrics"]) == 76 and run["hash"] == config_hash(run["config"]) for run in records)
    assert (tmp_path / "figures" / "corruption-severity.svg").exists()
