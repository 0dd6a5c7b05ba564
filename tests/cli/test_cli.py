from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import sklearn.calibration
import torch
from typer.testing import CliRunner

from orthograd import __version__
from orthograd.cli.main import COMMANDS, app
from orthograd.lab.bench import suite
from orthograd.lab.bench.claim import Claim, interleaved, ratios
from orthograd.lab.bench.memory import peak
from orthograd.lab.bench.shapes import NETWORKS


def test_module_runs_and_help_teaches():
    run = subprocess.run([sys.executable, "-m", "orthograd", "--help"], capture_output=True, text=True, check=True)
    assert "bench" in run.stdout
    assert CliRunner().invoke(app, ["version"]).output.strip() == __version__


@pytest.mark.parametrize(("value", "code"), [(0.5, 0), (1.5, 1), (float("nan"), 1)])
def test_bench_prints_writes_and_fails_when_a_bound_is_not_kept(monkeypatch, tmp_path, value, code):
    monkeypatch.setattr(
        "orthograd.lab.bench.suite.measure", lambda *_, **__: iter([Claim("what", value, 1.0, {"peer": 3.0})])
    )
    record = tmp_path / "record.json"
    run = CliRunner().invoke(app, ["bench", "--record", str(record), "--device", "cpu"])
    assert run.exit_code == code
    assert "peer 3" in run.output
    assert ("too much" in run.output) == bool(code)
    written = json.loads(record.read_text())
    assert written["claims"][0]["holds"] is not bool(code)
    assert written["environment"]["torch"] == torch.__version__


def test_bench_measures_calibration_if_asked(monkeypatch):
    monkeypatch.setattr("orthograd.lab.bench.suite.measure_calibration", lambda **_: iter([Claim("a fit", 0.5, 1.0)]))
    assert "a fit" in CliRunner().invoke(app, ["bench", "--calibration"]).output


def test_bench_measures_judging_if_asked(monkeypatch):
    monkeypatch.setattr("orthograd.lab.bench.suite.measure_judging", lambda _: iter([Claim("judged", 0.5, 1.0)]))
    monkeypatch.setattr("orthograd.lab.data.corruption.frost_textures", list)
    assert "judged" in CliRunner().invoke(app, ["bench", "--judging"]).output


def test_bench_says_first_that_judging_wants_frost(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOGRAD_DATA", str(tmp_path))
    monkeypatch.setattr("orthograd.lab.data.corruption.frost.PACKAGE", "no_such_package")
    run = CliRunner().invoke(app, ["bench", "--judging"])
    assert run.exit_code == 2
    assert "--judging: expected photographs" in run.output


@pytest.mark.slow
def test_quick_calibration_suite_measures_every_kind_of_claim():
    claims = list(suite.measure_calibration(quick=True))
    words = ["entropy", "loss above the minimum", "time of vector scaling", "ECE − 0.4"]
    words += ["time of that fit"] if hasattr(sklearn.calibration, "_TemperatureScaling") else []
    for word in words:
        assert any(word in claim.what for claim in claims), word
    assert all(claim.holds for claim in claims if "time" not in claim.what)  # time is for benchmarks, not for tests


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--device toaster", "got toaster"),
        ("--device cuda", "got cuda"),
        ("--threads 0", "--threads"),
        ("--training --device cpu", "expected a GPU, got cpu"),
        ("--training --judging", "expected one of"),
        ("--calibration --device cuda", "--calibration: expected the CPU, got cuda"),
        ("--calibration --record .", "expected a file"),
        ("--training --quick", "expected --quick without --training and --judging"),
        ("--judging --quick", "expected --quick without --training and --judging"),
    ],
)
def test_bench_refuses_what_cannot_be(options, words):
    if options == "--device cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    run = CliRunner().invoke(app, ["bench", *options.split()])
    assert run.exit_code == 2
    assert words in run.output


@pytest.mark.slow
def test_quick_suite_measures_every_kind_of_claim():
    claims = list(suite.measure(torch.device("cpu"), quick=True))
    for word in ("cos(g⊥, w)", "‖ĝ‖/‖g‖", "cos(Δ, w)", "extra memory", "step"):
        assert any(word in claim.what for claim in claims), word
    assert all(claim.holds for claim in claims if "step" not in claim.what)  # time is for benchmarks, not for tests
    assert all(claim.value > 0 for claim in claims)


def test_interleaved_runs_give_ratios():
    seconds = interleaved({"base": lambda: None, "ours": lambda: None}, rounds=3, settle=lambda: None)
    assert seconds.keys() == {"base", "ours"}
    assert ratios({"base": 2.0, "ours": 3.0}, "base") == {"ours": 1.5}


def test_peak_counts_what_is_allocated_at_once():
    assert 4 <= peak(torch.device("cpu"), lambda: torch.zeros(1 << 20) + 1) <= 8.1
    assert peak(torch.device("cpu"), lambda: None) == 0


@pytest.mark.parametrize(
    ("network", "tensors", "elements"), [("ResNet-18", 62, 11_173_962), ("GPT-2 small", 148, 124_439_808)]
)
def test_networks_have_the_size_they_say(network, tensors, elements):
    shapes = NETWORKS[network]()
    assert len(shapes) == tensors
    assert sum(torch.Size(shape).numel() for shape in shapes) == elements


@pytest.mark.parametrize("command", [[], *([command.__name__] for command in COMMANDS)])
def test_help_imports_nothing_that_takes_long(command):
    code = (
        "import sys; from typer.testing import CliRunner; from orthograd.cli.main import app; "
        f"done = CliRunner().invoke(app, {[*command, '--help']}); assert done.exit_code == 0, done.output; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "scipy", "matplotlib", "pyarrow", "PIL", "sklearn"}.isdisjoint(run.stdout.split())


def test_the_version_is_an_option_too():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == __version__


def printed(encoding: str, *arguments: str) -> str:
    """What the command prints where the output has this encoding, its errors included."""
    variables = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    variables |= {"LC_ALL": "C"} if encoding == "C" else {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-m", "orthograd", *arguments], env=variables, capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert done.stderr == b""
    return done.stdout.decode("ascii" if encoding == "C" else encoding)


@pytest.mark.parametrize(
    ("encoding", "command"), [("ascii", []), ("C", []), *(("cp1252", [command.__name__]) for command in COMMANDS)]
)
def test_help_is_printed_in_every_encoding(encoding, command):
    words = printed(encoding, *command, "--help")
    assert "Usage:" in words
    assert command or "_|_Grad" in words


def test_tables_are_printed_in_every_encoding(tmp_path):
    (tmp_path / "test.csv").write_text("class_0,class_1,label\n2.5,-1,0\n0.5,1.5,1\n")
    options = ["--explain", "--resamples", "0", "--out", str(tmp_path)]
    words = printed("cp1252", "evaluate", str(tmp_path / "test.csv"), *options)
    assert "ece v" in words
    assert "v lower is better, ^ higher is better" in words


@pytest.mark.slow
def test_what_is_written_does_not_depend_on_the_encoding_of_the_output(tmp_path):
    words = printed("ascii", "theory", "--only", "length", "--out", str(tmp_path))
    assert "<=" in words
    assert "theta" in words
    json.loads((tmp_path / "theory.json").read_text(encoding="utf-8"))


def test_a_record_of_bench_is_utf8_wherever_it_is_written(tmp_path):
    code = (
        "from pathlib import Path\nfrom orthograd.cli.bench import _write\n"
        "from orthograd.lab.bench.claim import Claim\n"
        f"_write(Path({str(tmp_path / 'record.json')!r}), [Claim('cos(g⊥, w)', 0.5, 1.0)], {{}})"
    )
    variables = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    source = tmp_path / "script.py"
    source.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, str(source)], env=variables, check=True)
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["claims"][0]["what"] == "cos(g⊥, w)"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux, whose disk is full")
@pytest.mark.parametrize("command", [["--help"], ["bench", "--help"], ["version"]])
def test_output_that_cannot_be_written_is_told_in_a_line(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "orthograd", *command], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode != 0
    assert b"orthograd: [Errno 28]" in done.stderr
    assert b"Traceback" not in done.stderr
