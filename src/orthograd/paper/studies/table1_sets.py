"""All sets of runs of the paper's table 1: ResNet-18 trained again with other precisions, kernels and seeds.

Runs of a seed share images and initial weights in every set, so the seed is the unit: its runs are averaged first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from ...calibration import CONVENTIONS
from ...lab.comparison.pair import MethodPair
from ...lab.comparison.records import Record, is_number
from ...lab.jobs.bundles import read_bundle
from ...statistics.table import markdown_table
from ..formats import p_text
from ..plan import PAIR, PAPER
from .effect import Effect

SETS = (
    ("TF32, cuDNN's", "tf32", "reproduction/resnet18-{}.json", range(20)),
    ("TF32, our own", "tf32", "table1-tf32-corrupted/{}.json", range(20)),
    ("bf16, cuDNN's", "bf16", "reproduction/resnet18_bf16-{}.json", range(20)),
    ("bf16, our own", "bf16", "table1-bf16/{}.json", range(20)),
    ("bf16, our own", "bf16", "more-seeds-bf16/{}.json", range(20, 35)),
    ("bf16, our own", "bf16", "reproduction/resnet18_keep-{}.json", range(100, 120)),
)
"""Precision and convolution kernels, in words and in the config; files of records by method; seeds."""
SHOWN = ("top1_accuracy", "loss", "ece")


def pairs(results: Path) -> Iterator[tuple[str, MethodPair]]:
    """Each set with its name."""
    for title, precision, files, seeds in SETS:
        records = [record for method in PAIR for record in read_bundle(results / files.format(method))]
        runs = [record for record in records if _is_of_table_1(record["config"], precision, seeds)]
        yield title, MethodPair.of(runs, baseline=PAIR[0], candidate=PAIR[1])


@cache
def pooled(results: Path) -> MethodPair:
    """All sets as one pair on clean images; each of its runs is the mean of the runs of a seed."""
    runs = [record for _, pair in pairs(results) for record in pair.records]
    named: dict[tuple[str, int], list[Record]] = {}
    for record in runs:
        named.setdefault((record["config"]["method"], record["config"]["seed"]), []).append(record)
    means = [_mean(method, seed, same) for (method, seed), same in named.items()]
    return MethodPair.of(means, baseline=PAIR[0], candidate=PAIR[1])


def table1_sets(results: Path) -> str:
    """⊥Grad − SGD on clean images, pooled and in each set."""
    pair = pooled(results)
    rows = [_row("**all sets, pooled by seed**", f"{len(pair.seeds)} seeds", pair)]
    rows += [_row(title, f"{each.seeds[0]} to {each.seeds[-1]}", each) for title, each in pairs(results)]
    header = ["precision, convolutions", "seeds", "accuracy ↑, points", "loss ↓", "ECE ↓", "p of ECE, not corrected"]
    header += ["ECE after temperature scaling ↓"]
    return markdown_table(header, rows)


def _row(title: str, seeds: str, pair: MethodPair) -> list[str]:
    clean, scaled = pair.tables["clean"], pair.tables["temperature-scaled"]
    effects = [Effect.of(clean[metric]).text(CONVENTIONS[metric].digits) for metric in SHOWN]
    return [title, seeds, *effects, p_text(clean["ece"].p), Effect.of(scaled["ece"]).text(CONVENTIONS["ece"].digits)]


def _mean(method: str, seed: int, runs: list[Record]) -> dict[str, Any]:
    clean = _means(run["metrics"]["clean"] for run in runs)
    scaled = _means(run["after_temperature"]["metrics"] for run in runs)
    return {
        "config": {"method": method, "seed": seed},
        "metrics": {"clean": clean},
        "after_temperature": {"metrics": scaled},
    }


def _means(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    every = list(metrics)
    names = [name for name in every[0] if all(is_number(each.get(name)) for each in every)]
    return {name: fmean(each[name] for each in every) for name in names}


def _is_of_table_1(config: Mapping[str, Any], precision: str, seeds: range) -> bool:
    if config["method"] not in PAIR or config["seed"] not in seeds:
        return False
    free = {name: config[name] for name in ("method", "seed", "shifts")}
    return bool(config == {**dataclasses.replace(PAPER, precision=precision).as_dict(), **free})
