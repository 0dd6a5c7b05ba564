"""The tables of docs/howto/trainers.md on LoRA, from the record of benchmarks/lora.py."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from ...statistics import Comparison, compare
from ...statistics.table import markdown_table
from .effect import Effect

MEASURED = {"growth": 2, "training_loss": 3, "top1_accuracy": 1, "ece": 3}
"""Quantities of the table, with their digits."""
TITLES = {
    "AdamW": "none",
    "all": "all adapters",
    "A": "A alone",
    "B": "B alone",
    "A and B as one": 'A and B of a layer as one vector (`granularity="group"`)',
}
PREDICTED = "LoRA, rank 8, rate 0.003"
"""The case of the predictions."""

Runs = dict[str, dict[str, list[dict[str, float]]]]


def _runs(results: Path) -> Runs:
    record: dict[str, Any] = json.loads((results / "lora.json").read_text(encoding="utf-8"))
    runs: Runs = record["runs"]
    return runs


def _compared(case: dict[str, list[dict[str, float]]], method: str, quantity: str) -> Comparison:
    return compare(*([run[quantity] for run in case[name]] for name in ("AdamW", method)))


def lora(results: Path) -> str:
    """Means of each case without ⊥Grad, and paired differences with it."""
    rows = []
    for name, case in _runs(results).items():
        for method, runs in case.items():
            means = [f"{fmean(run[quantity] for run in runs):.{digits}f}" for quantity, digits in MEASURED.items()]
            if method != "AdamW":
                effects = (Effect.of(_compared(case, method, quantity)) for quantity in MEASURED)
                means = [effect.text(digits) for effect, digits in zip(effects, MEASURED.values(), strict=True)]
            rows.append([name, TITLES[method], str(len(runs)), *means])
    quantities = ["size of BA", "training loss ↓", "test accuracy, % ↑", "ECE ↓"]
    return markdown_table(["case", "⊥Grad on", "seeds", *quantities], rows)


def lora_predictions(results: Path) -> str:
    """Each prediction of the log beside what was measured."""
    every = _runs(results)
    case = every[PREDICTED]
    loss, accuracy, ece = (_compared(case, "all", quantity) for quantity in ("training_loss", "top1_accuracy", "ece"))
    mean = {method: fmean(run["growth"] for run in runs) for method, runs in case.items()}
    share = {method: (mean["AdamW"] - value) / (mean["AdamW"] - mean["all"]) for method, value in mean.items()}
    others = {name: _compared(every[name], "all", "growth") for name in every if "rank 1" in name or "DoRA" in name}

    def row(prediction: str, measured: str, *, is_right: bool) -> list[str]:
        return [prediction, measured, "right" if is_right else "wrong"]

    rows = [
        row(
            "All adapters: BA ends at less than half its size",
            f"{mean['all'] / mean['AdamW']:.2f} of it",
            is_right=mean["all"] < mean["AdamW"] / 2,
        ),
        row(
            "Training loss higher, test accuracy not higher",
            f"{Effect.of(loss).text(3)}; {Effect.of(accuracy).text(1)} points",
            is_right=loss.interval.low > 0 and accuracy.interval.low <= 0,
        ),
        row("ECE lower", Effect.of(ece).text(3), is_right=ece.interval.high < 0),
        row(
            "B alone has at least 80% of the effect on the size of BA, A alone less than 20%",
            f"{share['B']:.0%}, {share['A']:.0%}",
            is_right=share["B"] >= 0.8 and share["A"] < 0.2,
        ),
        row(
            "A and B as one vector: less than half of it",
            f"{share['A and B as one']:.0%}",
            is_right=share["A and B as one"] < 0.5,
        ),
        row(
            "Rank 1 and DoRA: BA is smaller, too",
            "; ".join(Effect.of(other).text(2) for other in others.values()),
            is_right=all(other.interval.high < 0 for other in others.values()),
        ),
    ]
    return markdown_table(["prediction", "measured", "outcome"], rows)
