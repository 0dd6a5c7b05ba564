"""``orthograd reproduce grokking``: rows are trained once, and wrong requests are refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from orthograd.cli.main import app
from orthograd.paper.grokking import figures, page, records, rows


@pytest.fixture
def short(monkeypatch):
    """Every row is a run of two steps on parity, in this process and for the records."""
    small = {"task": "parity", "network": "mlp", "train_share": 0.5, "steps": 2}
    table = {name: replace(row, **small) for name, row in rows.ROWS.items()}
    monkeypatch.setattr(rows, "ROWS", table)
    monkeypatch.setattr(records, "ROWS", table)


def invoked(*arguments):
    result = CliRunner().invoke(app, ["reproduce", "grokking", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.usefixtures("short")
def test_quick_ends_with_the_figure_and_three_sentences(tmp_path):
    quick = rows.QUICK_ON_A_GPU if torch.cuda.is_available() else rows.QUICK
    code, said = invoked("--quick", "--seeds", 2, "--out", tmp_path, "--export", tmp_path / "export")
    assert code == 0, said
    assert f"{len(quick)} rows of 2 seeds, 0 of them done." in said
    assert "AdamW: 0 of 2 seeds generalize in 2 steps" in said
    assert re.search(
        r"norm of logits, .* is [\d.]+ \(AdamW\), [\d.]+ \(⊥AdamW\), [\d.]+ \(AdamW with weight decay 8", said
    )
    folder = tmp_path / "grokking-quick"
    assert {path.name for path in folder.iterdir()} == {"records", "grokking.md", "mechanism.png", "accuracy.png"}
    record = json.loads((tmp_path / "export" / "ortho_adamw.json").read_text())
    assert record["seeds"] == [0, 1]
    assert record["made"]["versions"]["torch"] == torch.__version__
    before = {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}
    code, said = invoked("--quick", "--seeds", 2, "--out", tmp_path)
    assert code == 0
    assert f"{len(quick)} of them done." in said
    assert {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()} == before


@pytest.mark.usefixtures("short")
def test_single_rows_and_exported_records(tmp_path):
    code, said = invoked("--only", "adamw", "--only", "decay_8", "--seeds", 2, "--device", "cpu", "--out", tmp_path)
    assert code == 0, said
    assert sorted(path.name for path in (tmp_path / "grokking" / "records").iterdir()) == ["adamw.json", "decay_8.json"]
    code, said = invoked(
        "--rebuild", "--only", "adamw", "--out", tmp_path / "new", "--export", tmp_path / "grokking" / "records"
    )
    assert code == 0, said
    assert "AdamW in 0 of 2 seeds" in said


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_every_row_alone_gives_a_page_with_its_curves(tmp_path, monkeypatch):
    drawn, draw = [], figures._draw
    monkeypatch.setattr(figures, "_draw", lambda axes, *rest: drawn.append(rest[0].row.name) or draw(axes, *rest))
    monkeypatch.setattr(page, "save_figure", lambda figure, path: path.touch())  # 35 times is slow
    for name in rows.ROWS:
        code, said = invoked("--quick", "--only", name, "--seeds", 2, "--out", tmp_path / name)
        assert code == 0, said
        assert (tmp_path / name / "grokking-quick" / "grokking.md").is_file()
        assert drawn == [name] * (len(figures.PANELS) + 1)
        drawn.clear()


@pytest.mark.usefixtures("short")
def test_a_time_limit_ends_between_rows(tmp_path):
    code, said = invoked("--quick", "--seeds", 2, "--minutes", 0, "--out", tmp_path)
    assert code == 3
    assert "The time limit was reached." in said


def test_a_dry_run_trains_nothing(tmp_path):
    code, said = invoked("--dry-run", "--out", tmp_path)
    assert code == 0
    assert "stablemax: AdamW with StableMax, 100,000 steps" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nonsense"], "expected rows among adamw, ortho_adamw"),
        (["--epochs", 3], "expected no --epochs with grokking: it would be ignored"),
        (["table1"], "expected grokking alone, got grokking, table1"),
        (["--device", "tpu", "--quick"], "expected the device cpu or cuda, got tpu"),
        (["--rebuild"], "expected records in"),
    ],
)
def test_wrong_requests_are_refused(arguments, words, tmp_path):
    code, said = invoked(*arguments, "--out", tmp_path)
    assert code == 2
    assert words in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_all_rows_need_a_gpu(tmp_path):
    code, said = invoked("--out", tmp_path)
    assert code == 2
    assert "expected a GPU for these runs, got none; use --quick, or --device cpu" in said


def test_options_of_grokking_need_it(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "table1", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "expected no --quick without grokking" in " ".join(result.output.split())
