"""What `orthograd compare` writes beside the runs: tables for people and programs, figures, and the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..calibration import ReliabilityCurve
from ..report.comparison import ArmPair, as_csv, by_severity, latex, markdown, verdict
from ..report.formats import tex
from ..report.page import FailedRun
from ..statistics import ComparisonTable
from .record import replaced

SHOWN = ("top1_accuracy", "loss", "ece", "max_softmax")
Tables = Mapping[str, ComparisonTable]


def write_comparison(
    pair: ArmPair, names: tuple[str, str], folder: Path, *, failed: Sequence[FailedRun] = ()
) -> list[Path]:
    """Write report.html, comparison.json, .md, .tex and .csv, and PNG figures; each whole or not at all."""
    from .comparison_page import comparison_page

    tables = pair.tables
    summary = _summary(pair, tables, names, failed)
    texts = {
        "report.html": comparison_page(pair, failed),
        "comparison.json": json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "comparison.md": _document(tables, names),
        "comparison.tex": _latex(tables, names, len(pair.seeds)),
        "comparison.csv": as_csv(tables["clean"], baseline=names[0], candidate=names[1]),
    }
    return [*(write_text(folder / name, text) for name, text in texts.items()), *_figures(pair, names, folder)]


def write_text(path: Path, text: str) -> Path:
    """Write a file of text, whole or not at all."""
    return replaced(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8", newline="\n"))


def _summary(pair: ArmPair, tables: Tables, names: tuple[str, str], failed: Sequence[FailedRun]) -> dict[str, Any]:
    missing = {"failed": [[run.arm, run.seed] for run in failed]} if failed else {}
    return {
        "verdict": verdict(tables["clean"], baseline=names[0], candidate=names[1]),
        "seeds": pair.seeds,
        "config": {name: value for name, value in pair.baseline[0]["config"].items() if name not in ("arm", "seed")},
        "arms": list(pair.arms),
        "tables": {title: table.as_dict() for title, table in tables.items()},
        **missing,
    }


def _document(tables: Tables, names: tuple[str, str]) -> str:
    baseline, candidate = names
    return f"{verdict(tables['clean'], baseline=baseline, candidate=candidate)}\n" + "".join(
        f"\n## {title.capitalize()} test images\n\n{markdown(table, baseline=baseline, candidate=candidate)}"
        for title, table in tables.items()
    )


def _latex(tables: Tables, names: tuple[str, str], seeds: int) -> str:
    """For each table a float with its caption."""
    told = f"mean ± SD of {seeds} seeds, difference by pairs with its 95 % interval, Cohen's d, p by Holm's rule"
    return "% needs \\usepackage{booktabs,graphicx}\n" + "".join(
        f"\n\\begin{{table}}[ht]\n\\caption{{{tex(f'{title.capitalize()} test images: {told}.')}}}\n"
        f"{latex(table, baseline=names[0], candidate=names[1])}\\end{{table}}\n"
        for title, table in tables.items()
    )


def _figures(pair: ArmPair, names: tuple[str, str], folder: Path) -> list[Path]:
    from ..report import reliability_figure, save_figure, severity_figure  # with matplotlib, which takes a while

    arms = dict(zip(names, (pair.baseline, pair.candidate), strict=True))
    curves = {
        name: [ReliabilityCurve.from_dict(record["reliability"]["clean"]) for record in arm]
        for name, arm in arms.items()
    }
    written = [replaced(folder / "reliability.png", lambda path: save_figure(reliability_figure(curves), path))]
    if pair.is_shifted:
        by_metric = {metric: {name: by_severity(arm, metric) for name, arm in arms.items()} for metric in SHOWN}
        written.append(replaced(folder / "severity.png", lambda path: save_figure(severity_figure(by_metric), path)))
    return written
