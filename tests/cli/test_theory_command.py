from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from orthograd.cli.theory import theory
from orthograd.paper.theory import suite
from orthograd.paper.theory.statement import Demonstration, Statement
from orthograd.paper.theory.suite import DEMONSTRATIONS, with_tables

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "docs" / "results" / "theory.json").read_text(encoding="utf-8"))


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(theory)
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def stated(monkeypatch):
    """A demonstration that takes no time, with the curves of the record for its figure."""
    curves = next(part["curves"] for part in RECORD["demonstrations"] if part["name"] == "path_length")

    def replace(*statements):
        quick = Demonstration("path_length", "quick", statements, curves)
        monkeypatch.setitem(suite.DEMONSTRATIONS, "path_length", lambda: quick)

    return replace


def test_it_prints_and_writes_a_record_and_a_figure(run, tmp_path, stated):
    stated(Statement("0 ≤ 1", "nothing", 0.0, "≤", 1.0))
    result = run("--only", "path_length", "--out", tmp_path / "new" / "folder")
    assert result.exit_code == 0, result.output
    assert "0 ≤ 1" in result.output
    record = json.loads((tmp_path / "new" / "folder" / "theory.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in record["demonstrations"]] == ["path_length"]
    assert (tmp_path / "new" / "folder" / "path_length.png").stat().st_size > 10_000


def test_a_statement_that_does_not_hold_exits_with_1(run, tmp_path, stated):
    stated(Statement("1 ≤ 0", "one", 1.0, "≤", 0.0))
    result = run("--only", "path_length", "--out", tmp_path)
    assert result.exit_code == 1
    assert (tmp_path / "theory.json").exists()


def test_an_unknown_name_exits_with_2(run, tmp_path):
    result = run("--only", "nonsense", "--out", tmp_path)
    assert result.exit_code == 2
    assert not (tmp_path / "theory.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "to have the line '<!-- path_length"),
        ("<!-- path_length: written by orthograd theory -->\n", "to have the line '<!-- end"),
    ],
)
def test_what_cannot_be_written_to_is_named_before_anything_is_tried(run, tmp_path, monkeypatch, text, words):
    monkeypatch.setitem(suite.DEMONSTRATIONS, "path_length", None)  # calling it would raise
    document = tmp_path / "notes.md"
    document.write_text(text)
    result = run("--only", "path_length", "--out", tmp_path / "out", "--document", document)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    result = run("--only", "path_length", "--out", document)
    assert result.exit_code == 2
    assert f"{document}: " in result.output.replace("\n", "")


def test_the_document_has_the_tables_of_the_record():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert with_tables(text, RECORD) == text, "run: orthograd theory --document docs/theory.md"


def test_the_record_is_whole_and_every_statement_in_it_holds():
    assert [part["name"] for part in RECORD["demonstrations"]] == list(DEMONSTRATIONS)
    assert {"orthograd", "torch", "python", "device", "threads", "dtype"} <= RECORD["environment"].keys()
    for part in RECORD["demonstrations"]:
        assert [row["says"] for row in part["statements"] if not row["holds"]] == []


def test_the_document_shows_every_figure():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert set(re.findall(r"figures/theory/(\w+)\.png", text)) == set(DEMONSTRATIONS)
    for name in DEMONSTRATIONS:
        assert (ROOT / "docs" / "figures" / "theory" / f"{name}.png").exists()


@pytest.mark.slow
def test_every_demonstration_holds(run, tmp_path):
    result = run("--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert {path.stem for path in tmp_path.glob("*.png")} == set(DEMONSTRATIONS)
