"""All sets of runs of the paper's table 1: ResNet-18 trained again with other precisions, kernels and seeds.

Runs of a seed share images and initial weights in every set, so the seed is the unit: its runs are averaged first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from ...calibration import CONVENTIONS
from ...lab.comparison.pair import MethodPair
from ...lab.comparison.records import Record, image_sets, is_number
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
IMAGES = {"clean": "clean", "shifted": "corrupted"}


def pairs(results: Path, images: str = "clean") -> Iterator[tuple[str, str, MethodPair]]:
    """The name, the files and the runs of each set that was evaluated on these images."""
    for title, precision, files, seeds in SETS:
        records = [record for method in PAIR for record in read_bundle(results / files.format(method))]
        runs = [record for record in records if _is_of_table_1(record["config"], precision, seeds)]
        if images == "clean" or all(image_sets(run) for run in runs):
            yield title, files, MethodPair.of(runs, baseline=PAIR[0], candidate=PAIR[1])


@cache
def pooled(results: Path, images: str = "clean") -> MethodPair:
    """All sets with these images as one pair; each of its runs is the mean of the runs of a seed.

    With `images="shifted"` the pair has clean images too, of the same runs.
    """
    named: dict[tuple[str, int], list[Record]] = {}
    for record in (record for *_, pair in pairs(results, images) for record in pair.records):
        named.setdefault((record["config"]["method"], record["config"]["seed"]), []).append(record)
    means = [_mean(method, seed, same, images) for (method, seed), same in named.items()]
    return MethodPair.of(means, baseline=PAIR[0], candidate=PAIR[1])


def table1_sets(results: Path) -> str:
    """⊥Grad − SGD on clean and on corrupted images, pooled and in each set."""
    rows = []
    for images in IMAGES:
        pair = pooled(results, images)
        rows.append(_row("**all sets, pooled by seed**", images, f"{len(pair.seeds)} seeds", pair, "the sets below"))
        rows += [
            _row(title, images, f"{each.seeds[0]} to {each.seeds[-1]}", each, record_links(files, PAIR))
            for title, files, each in pairs(results, images)
        ]
    header = ["precision, convolutions", "images", "seeds", "accuracy ↑, points", "loss ↓", "ECE ↓"]
    header += ["p of ECE, not corrected", "ECE after temperature scaling ↓", "record"]
    return markdown_table(header, rows)


def record_links(files: str, methods: Sequence[str]) -> str:
    """Links from a page of docs/ to the records of both methods; ``files`` is a path with {} for the method.

    >>> record_links("a/{}.json", ("baseline", "orthograd"))
    '[without](results/a/baseline.json), [with](results/a/orthograd.json)'
    """
    linked = zip(("without", "with"), methods, strict=True)
    return ", ".join(f"[{text}](results/{files.format(method)})" for text, method in linked)


def _row(title: str, images: str, seeds: str, pair: MethodPair, record: str) -> list[str]:
    shown, digits = pair.tables[images], CONVENTIONS["ece"].digits
    effects = [Effect.of(shown[metric]).text(CONVENTIONS[metric].digits) for metric in SHOWN]
    scaled = Effect.of(pair.tables["temperature-scaled"]["ece"]).text(digits) if images == "clean" else "–"
    return [title, IMAGES[images], seeds, *effects, p_text(shown["ece"].p), scaled, record]


def _mean(method: str, seed: int, runs: list[Record], images: str) -> dict[str, Any]:
    names = ("clean", *(image_sets(runs[0]) if images == "shifted" else ()))
    scaled = _means(run["after_temperature"]["metrics"] for run in runs)
    return {
        "config": {"method": method, "seed": seed},
        "metrics": {name: _means(run["metrics"][name] for run in runs) for name in names},
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
