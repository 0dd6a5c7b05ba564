"""The command line where packages of its extras are missing: it works, or ends in a line that says what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import orthograd
from orthograd.cli.main import COMMANDS
from orthograd.imports import LAB
from tests.cli.forks import Forks

ROOT = Path(__file__).parents[2]
SITE, SOURCE = Path(sysconfig.get_path("purelib")), Path(orthograd.__file__).parent.parent
COMMAND_LINES = {
    "compare": ["--seeds", "2", "--epochs", "1", "--workers", "1"],
    "report": ["comparison"],
    "evaluate": ["test.csv", "--resamples", "0"],
    "reproduce": ["table1", "--dry-run"],
    "theory": ["--only", "nonsense"],
    "data": ["cifar10", "--from", "nowhere", "--folder", "data"],
    "bench": ["--only", "training", "--device", "cpu"],
}

IMPORTED = "torch torch._dynamo scipy.stats matplotlib.pyplot sklearn.datasets pyarrow rich typer safetensors.torch"
"""What commands import of others and takes long, imported once for all of them where it is there."""


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
    ("missing", "arguments"),
    [(LAB, []), (LAB, ["--help"]), (LAB, ["compare"]), (["typer"], []), (["rich"], ["--help"])],
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


@pytest.fixture
def project():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_table_of_modules_is_the_extra_of_the_project(project):
    extra = project["project"]["optional-dependencies"]["lab"]
    assert sorted(LAB.values()) == sorted(name.partition(">")[0] for name in extra)


def test_a_source_distribution_has_the_sources_and_no_records(project):
    (folders,) = project["tool"]["hatch"]["build"]["targets"]["sdist"].values()
    assert "src" in folders
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files if path.suffix != ".pyc") < 2_000_000  # bytes


def ends(packages: Path, **more: list[str]) -> dict[str, subprocess.CompletedProcess[str]]:
    """How each command ends, with more arguments for some of them."""
    with Forks(IMPORTED, packages=(SOURCE, packages)) as forks:
        return {
            name: forks.run(packages.parent, name, *arguments, *more.get(name, []))
            for name, arguments in COMMAND_LINES.items()
        }


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """How each command ends where nothing is missing, and the folder where it ended."""
    folder = tmp_path_factory.mktemp("usual")
    (folder / "test.csv").write_text("class_0,class_1,label\n2.5,-1,0\n0.5,1.5,1\n")
    return folder, ends(environment(folder / "packages"))


@pytest.mark.slow
@pytest.mark.parametrize("missing", sorted(set(LAB) - {"typer", "rich"}))  # without those no command line can be parsed
def test_a_package_that_is_missing_is_either_not_needed_or_named(tmp_path, usual, missing):
    folder, expected = usual
    packages = environment(tmp_path / "packages", missing)
    shutil.copytree(folder / "comparison", tmp_path / "comparison")
    shutil.copy(folder / "test.csv", tmp_path)
    for command, done in ends(packages, compare=["--out", "new"]).items():
        if "pip install" in done.stderr:
            assert_says_what_to_install(done)
            assert missing in done.stderr or LAB[missing] in done.stderr
        else:
            assert (done.returncode, done.stderr) == (expected[command].returncode, expected[command].stderr), command
