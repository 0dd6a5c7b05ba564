"""The commit that a record keeps, in repositories made for the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orthograd import __version__
from orthograd.lab import versions as module
from orthograd.lab.versions import VARIABLE, source, versions


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    source.cache_clear()
    yield
    source.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    (tmp_path / "src").mkdir()
    for name in ("src/code.py", "record.json"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_the_source_is_the_commit(checkout):
    assert source(checkout) == git(checkout, "rev-parse", "HEAD")


def test_changed_records_are_no_changes(checkout):
    (checkout / "record.json").write_text("2\n")
    (checkout / "record-of-today.json").write_text("2\n")
    assert source(checkout) == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["code.py", "new.py"])
def test_changed_and_new_code_is_told(checkout, name):
    (checkout / "src" / name).write_text("2\n")
    assert source(checkout) == git(checkout, "rev-parse", "HEAD") + "+changes"


def test_variables_of_git_do_not_lead_elsewhere(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    expected = (checkout / ".git" / git_head(checkout)).read_text().strip()
    assert source(checkout) == expected


def git_head(folder: Path) -> str:
    return (folder / ".git" / "HEAD").read_text().split()[-1]


def test_without_a_commit_a_checkout_or_git_it_is_the_version(checkout, tmp_path_factory, monkeypatch):
    new, elsewhere = tmp_path_factory.mktemp("new"), checkout / "packages"
    git(new, "init", "--quiet")
    elsewhere.mkdir()
    assert source(new) == source(elsewhere) == __version__
    monkeypatch.setenv("PATH", "")
    assert source(checkout) == __version__


def test_a_variable_names_the_commit_of_copied_source(checkout, monkeypatch):
    monkeypatch.setenv(VARIABLE, "abc123")
    assert source(checkout) == "abc123"


def test_git_is_asked_once_in_a_process(checkout, monkeypatch):
    calls = []
    run = subprocess.run
    monkeypatch.setattr(module.subprocess, "run", lambda *given, **named: calls.append(1) or run(*given, **named))
    assert source(checkout) == source(checkout)
    assert len(calls) == 1
    assert versions().keys() == {"orthograd", "source", "torch", "python"}
