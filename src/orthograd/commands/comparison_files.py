"""What `orthograd compare` writes beside the runs: tables for people and programs, and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..calibration import Evaluation, ReliabilityCurve
from ..experiment import Store
from ..report.comparison import ArmPair, as_csv, by_severity, markdown, verdict
from ..statistics import ComparisonTable
from .record import replaced

SHOWN = ("top1_accuracy", "loss", "ece", "max_softmax")


def write_comparison(
    pair: ArmPair, tables: Mapping[str, ComparisonTable], names: tuple[str, str], store: Store, folder: Path
) -> list[Path]:
    """Write comparison.json, .md and .csv, reliability.png and severity.png; each whole or not at all."""
    from ..report import reliability_figure, save_figure, severity_figure  # with matplotlib, which takes a while

    baseline, candidate = names
    summary = verdict(tables["clean"], baseline=baseline, candidate=candidate)
    document = f"{summary}\n" + "".join(
        f"\n## {title.capitalize()} test images\n\n{markdown(table, baseline=baseline, candidate=candidate)}"
        for title, table in tables.items()
    )
    record = {
        "verdict": summary,
        "seeds": pair.seeds,
        "config": {name: value for name, value in pair.baseline[0]["config"].items() if name not in ("arm", "seed")},
        "arms": list(pair.arms),
        "tables": {title: table.as_dict() for title, table in tables.items()},
    }
    spreadsheet = as_csv(tables["clean"], baseline=baseline, candidate=candidate)
    curves = {name: _curves(arm, store) for name, arm in zip(names, (pair.baseline, pair.candidate), strict=True)}
    over_severity = {
        metric: {baseline: by_severity(pair.baseline, metric), candidate: by_severity(pair.candidate, metric)}
        for metric in SHOWN
    }
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return [
        replaced(folder / "comparison.json", lambda path: path.write_text(text, encoding="utf-8")),
        replaced(folder / "comparison.md", lambda path: path.write_text(document, encoding="utf-8")),
        replaced(folder / "comparison.csv", lambda path: path.write_text(spreadsheet, encoding="utf-8")),
        replaced(folder / "reliability.png", lambda path: save_figure(reliability_figure(curves), path)),
        replaced(folder / "severity.png", lambda path: save_figure(severity_figure(over_severity), path)),
    ]


def _curves(records: tuple[Mapping[str, Any], ...], store: Store) -> list[ReliabilityCurve]:
    return [_curve(store.get(record["config"]).read_tensors("predictions")) for record in records]


def _curve(predictions: Mapping[str, Tensor]) -> ReliabilityCurve:
    evaluation = Evaluation(metrics=["ece"])
    evaluation.update(predictions["logits.clean"], predictions["labels"])
    return evaluation.reliability()
