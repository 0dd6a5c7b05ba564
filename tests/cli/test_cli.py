from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from orthograd import __version__
from orthograd.cli.main import COMMANDS, app


def test_module_runs_and_help_teaches():
    run = subprocess.run([sys.executable, "-m", "orthograd", "--help"], capture_output=True, text=True, check=True)
    assert "bench" in run.stdout
    assert CliRunner().invoke(app, ["version"]).output.strip() == __version__


def test_help_imports_nothing_that_takes_long():
    helps = [["--help"], *([command.__name__, "--help"] for command in COMMANDS)]
    code = (
        "import sys; from typer.testing import CliRunner; from orthograd.cli.main import app\n"
        f"for command in {helps}:\n"
        "    done = CliRunner().invoke(app, command); assert done.exit_code == 0, done.output\n"
        "    print(command[0], *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == len(helps)
    for line in lines:
        command, *modules = line.split()
        slow = {"torch", "numpy", "scipy", "matplotlib", "pyarrow", "PIL", "sklearn"} & set(modules)
        assert not slow, f"{command} imports {slow}"


def test_the_version_is_an_option_too():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == __version__


def printed(encoding: str, *arguments: str, command: tuple[str, ...] = ("-m", "orthograd")) -> str:
    """What the command prints where the output has this encoding, its errors included."""
    variables = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    variables |= {"LC_ALL": "C"} if encoding == "C" else {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, *command, *arguments], env=variables, capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert done.stderr == b""
    return done.stdout.decode("ascii" if encoding == "C" else encoding)


@pytest.mark.parametrize("encoding", ["ascii", "C"])
def test_help_is_printed_in_every_encoding(encoding):
    words = printed(encoding, "--help")
    assert "Usage:" in words
    assert "_|_Grad" in words


EACH = """
import sys
from orthograd.cli.main import main
for name in sys.argv[1:]:
    sys.argv = ["orthograd", name, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


def test_help_of_every_command_is_printed_on_windows():
    words = printed("cp1252", *(command.__name__ for command in COMMANDS), command=("-c", EACH))
    assert words.count("Usage:") == len(COMMANDS)


@pytest.mark.slow
def test_tables_are_printed_in_every_encoding(tmp_path):
    (tmp_path / "test.csv").write_text("class_0,class_1,label\n2.5,-1,0\n0.5,1.5,1\n")
    options = ["--explain", "--resamples", "0", "--out", str(tmp_path)]
    words = printed("cp1252", "evaluate", str(tmp_path / "test.csv"), *options)
    assert "ece v" in words
    assert "v lower is better, ^ higher is better" in words


@pytest.mark.slow
def test_what_is_written_does_not_depend_on_the_encoding_of_the_output(tmp_path):
    words = printed("ascii", "theory", "--only", "path_length", "--out", str(tmp_path))
    assert "<=" in words
    assert "theta" in words
    json.loads((tmp_path / "theory.json").read_text(encoding="utf-8"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux, whose disk is full")
@pytest.mark.parametrize("command", [["--help"], ["bench", "--help"], ["version"]])
def test_output_that_cannot_be_written_is_told_in_a_line(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "orthograd", *command], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode != 0
    assert b"orthograd: [Errno 28]" in done.stderr
    assert b"Traceback" not in done.stderr
