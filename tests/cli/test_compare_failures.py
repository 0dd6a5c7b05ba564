"""`orthograd compare` with runs that really fail: the page of the rest names them and leads to why."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from orthograd.cli.main import app
from tests.cli.forks import Forks

BREAKING = """
import math
from pathlib import Path
import torch

def model(shape, classes):
    if str(torch.initial_seed()) in Path(__file__).with_name("broken").read_text().split():
        raise ArithmeticError("<b>seed</b> breaks & ends")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))
"""


@contextmanager
def breaking_comparisons():
    """`orthograd compare` in a folder, with a network that breaks at some seeds."""
    with Forks() as forks:

        def run(folder, *arguments, broken):
            (folder / "breaking.py").write_text(BREAKING)
            (folder / "broken").write_text(broken)
            settings = ["--seeds", "3", "--epochs", "1", "--model", "breaking:model", "--out", "out"]
            return forks.run(folder, "compare", *settings, *arguments)

        yield run


@pytest.fixture(scope="module")
def compared():
    with breaking_comparisons() as run:
        yield run


def reported(*arguments):
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert done.exit_code == 0, done.output


def failures_of(page):
    """The rows of the table of failed runs: cells, and where each leads."""
    root = ElementTree.fromstring(page.read_text().removeprefix("<!DOCTYPE html>\n"))
    (failures,) = [
        table for table in root.iter("table") if "".join(table.find("caption").itertext()) == "Runs that failed"
    ]
    rows = [["".join(cell.itertext()) for cell in row] for row in failures.find("tbody")]
    return rows, [page.parent / unquote(link.get("href")) for link in failures.iter("a")]


def assert_failures_are_named(folder, done):
    assert done.returncode == 1, done.stderr
    assert "2 of 6 runs failed" in done.stderr
    assert "2 runs failed and are not included" in done.stdout
    page = folder / "out" / "report.html"
    rows, files = failures_of(page)
    assert rows == [
        [f"{name}, seed 1", "ArithmeticError: <b>seed</b> breaks & ends", "failure.txt"] for name in ("SGD", "⊥Grad")
    ]
    for file in files:
        text = file.read_text()
        assert "breaking.py" in text
        assert "Traceback" in text
        assert f"kept in {file}" in done.stderr
        assert json.loads((file.parent / "config.json").read_text())["seed"] == 1
    assert json.loads((folder / "out" / "comparison.json").read_text())["seeds"] == [0, 2]


@pytest.mark.slow
def test_runs_that_fail_in_a_pool_are_named(compared, tmp_path):
    assert_failures_are_named(tmp_path, compared(tmp_path, "--workers", 2, broken="1"))


@pytest.mark.slow
def test_failed_runs_are_named_on_the_page_until_they_are_done(compared, tmp_path):
    assert_failures_are_named(tmp_path, compared(tmp_path, "--workers", 1, broken="1"))
    page = tmp_path / "out" / "report.html"
    before = page.read_bytes()
    page.unlink()
    reported(tmp_path / "out")
    assert page.read_bytes() == before
    (tmp_path / "elsewhere").mkdir()
    reported(tmp_path / "out", "--out", tmp_path / "elsewhere" / "page.html")
    assert all(file.exists() for file in failures_of(tmp_path / "elsewhere" / "page.html")[1])

    again = compared(tmp_path, "--workers", 1, broken="")
    assert again.returncode == 0, again.stderr
    assert "failed" not in page.read_text()
    assert "failed" not in json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert not list(Path(tmp_path).glob("out/runs/*/failure.txt"))


@pytest.mark.slow
def test_where_too_few_runs_are_left_for_a_page_it_says_so(compared, tmp_path):
    done = compared(tmp_path, "--workers", 1, broken="1 2")
    assert done.returncode == 1
    assert "4 of 6 runs failed" in done.stderr
    assert "No report: fewer than 2 seeds" in done.stderr
    assert not (tmp_path / "out" / "report.html").exists()
