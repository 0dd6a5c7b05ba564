"""The command ``orthograd bench``: what it measures, what it refuses, and the record that it leaves."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from orthograd.cli.main import app
from orthograd.lab.bench import suite
from orthograd.lab.bench.claim import Claim, Key
from orthograd.lab.versions import source


def measuring(monkeypatch, value=0.5):
    """Names of what is measured, as it is asked for."""
    names = []

    def measured(chosen, device, *, quick):
        names.extend(chosen)
        return iter([Claim(Key("extra memory", model="cnn", unit="MiB"), value, 1.0, {"peer": 3.0}, ends=(0.1, 2.5))])

    monkeypatch.setattr(suite, "measured", measured)
    monkeypatch.setattr("orthograd.lab.data.corruption.frost_textures", list)
    return names


@pytest.mark.parametrize(("value", "code"), [(0.5, 0), (1.5, 1), (float("nan"), 1)])
def test_bench_prints_writes_and_fails_when_a_bound_is_not_kept(monkeypatch, tmp_path, value, code):
    measuring(monkeypatch, value)
    record = tmp_path / "record.json"
    run = CliRunner().invoke(app, ["bench", "--record", str(record), "--device", "cpu"])
    assert run.exit_code == code
    assert "extra memory, cnn, MiB: " in run.output
    assert "peer 3" in run.output
    assert "from 0.1" in run.output
    assert ("too much" in run.output) == bool(code)
    written = json.loads(record.read_text())
    assert written["claims"][0]["key"] == {"what": "extra memory", "model": "cnn", "unit": "MiB"}
    assert written["claims"][0]["holds"] is not bool(code)
    assert written["environment"]["torch"] == torch.__version__
    assert written["environment"]["source"] == source()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", ["exactness", "update", "memory", "step"]),
        ("--only step", ["step"]),
        ("--only drift,memory --only step", ["drift", "memory", "step"]),
        ("--only calibration", ["metrics", "temperature", "drift"]),
        ("--only corruption", ["corruption"]),
    ],
)
def test_bench_measures_what_it_is_asked_for(monkeypatch, options, names):
    asked = measuring(monkeypatch)
    run = CliRunner().invoke(app, ["bench", *options.split()])
    assert run.exit_code == 0, run.output
    assert asked == names


def test_bench_lists_what_it_can_measure():
    run = CliRunner().invoke(app, ["bench", "--list"])
    assert run.exit_code == 0
    assert all(name in run.output for name in (*suite.GROUPS, *suite.MEASUREMENTS))


def test_bench_says_first_that_corruption_needs_frost(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOGRAD_DATA", str(tmp_path))
    monkeypatch.setattr("orthograd.lab.data.corruption.frost.PACKAGE", "no_such_package")
    run = CliRunner().invoke(app, ["bench", "--only", "corruption"])
    assert run.exit_code == 2
    assert "corruption: expected photographs" in run.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--device toaster", "got toaster"),
        ("--device cuda", "got cuda"),
        ("--threads 0", "--threads"),
        ("--only training --device cpu", "training: expected a GPU, got cpu"),
        ("--only evaluation,drift", "evaluation: expected a GPU, got cpu"),
        ("--only speed", "expected names of optimizer, calibration, exactness"),
        ("--only calibration --record .", "expected a file"),
        ("--only corruption --quick", "corruption: expected no --quick"),
    ],
)
def test_bench_refuses_what_cannot_be(monkeypatch, options, words):
    if options == "--device cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    run = CliRunner().invoke(app, ["bench", *options.split()], env={"COLUMNS": "200"})
    assert run.exit_code == 2
    assert words in run.output


def test_calibrators_are_measured_on_the_cpu_alone(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    run = CliRunner().invoke(app, ["bench", "--only", "calibration", "--device", "cuda"])
    assert run.exit_code == 2
    assert "temperature: expected the CPU, got cuda" in run.output
