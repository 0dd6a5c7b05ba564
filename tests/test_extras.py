"""The command line where packages of its extras are missing: it works, or ends in a line that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import orthograd
from orthograd.cli import COMMANDS
from orthograd.extras import LAB

SITE, SOURCE = Path(sysconfig.get_path("purelib")), Path(orthograd.__file__).parent.parent
FILES = Path(__file__).parent.parent / "docs" / "results" / "reproduction"
COMMAND_LINES = {
    "compare": ["--seeds", "2", "--epochs", "1", "--workers", "1"],
    "report": ["comparison"],
    "evaluate": ["test.csv", "--resamples", "0"],
    "reproduce": ["table1", "--rebuild", "--export", str(FILES)],
    "theory": ["--only", "length"],
    "data": ["cifar10", "--from", "nowhere", "--folder", "data"],
    "bench": ["--training", "--device", "cpu"],
}


def environment(folder: Path, *missing: str) -> Path:
    """The packages of this environment but for those that are missing: here, and in every process started from here."""
    folder.mkdir()
    for path in SITE.iterdir():
        if path.name not in missing:
            (folder / path.name).symlink_to(path)
    return folder


def called(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, packages))), "COLUMNS": "200"}
    command = [sys.executable, "-S", "-m", "orthograd", *arguments]
    return subprocess.run(command, cwd=packages.parent, env=variables, capture_output=True, text=True)


def assert_says_what_to_install(done: subprocess.CompletedProcess[str], extra: str = "lab") -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert f"pip install '.[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("missing", "arguments"), [(LAB, []), (LAB, ["--help"]), (LAB, ["compare"]), (["typer"], []), (["rich"], ["--help"])]
)
def test_a_command_line_that_cannot_be_parsed_says_what_to_install(tmp_path, missing, arguments):
    assert_says_what_to_install(called(environment(tmp_path / "bare", *missing), *arguments))


@pytest.mark.parametrize("command", [command.__name__ for command in COMMANDS])
def test_with_nothing_but_typer_and_rich_every_command_says_what_to_install(tmp_path, command):
    packages = environment(tmp_path / "packages", *(set(LAB) - {"typer", "rich"}))
    assert_says_what_to_install(called(packages, command, *COMMAND_LINES[command]))


@pytest.mark.parametrize("command", [["compare"], ["reproduce", "table1", "--device", "cpu"]])
def test_without_ray_its_executor_says_what_to_install_before_anything_is_done(tmp_path, command):
    done = called(environment(tmp_path / "packages", "ray"), *command, "--executor", "ray")
    assert_says_what_to_install(done, extra="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["packages"]


@pytest.mark.slow
@pytest.mark.parametrize("missing", LAB)
def test_a_package_that_is_missing_is_either_not_needed_or_named(tmp_path, missing):
    whole, packages = environment(tmp_path / "whole"), environment(tmp_path / "packages", missing)
    (tmp_path / "test.csv").write_text("cat,dog,label\n2.5,-1,0\n0.5,1.5,1\n")
    for command in ("compare", "report", "evaluate", "reproduce", "theory", "data", "bench"):
        arguments = [command, *COMMAND_LINES[command]]
        done = called(packages, *arguments)
        if "pip install" in done.stderr:
            assert_says_what_to_install(done)
            assert missing in done.stderr or LAB[missing] in done.stderr
            if command == "compare":  # whose folder the next command reads
                assert called(whole, *arguments).returncode == 0
        else:
            usual = called(whole, *arguments)
            assert (done.returncode, done.stderr) == (usual.returncode, usual.stderr)
