"""Runs of several sets pooled by seed: those of the paper's table 1, and those with scaled corrupted images.

ResNet-18 was trained again with other precisions, kernels, seeds and batches. Runs of a seed share initial weights and
nearly all images in every set, so the seed is the unit: its runs are averaged first.
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
from .method_tables import reproduced

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
SCALED = {
    "a small last batch": {
        "8 images, first in the epoch": "resnet18_first",
        **{f"10 images, batches of {size}": f"resnet18_batch{size}_4810" for size in (50, 64, 100)},
    },
    "no small last batch": {f"batches of {size}": f"resnet18_batch{size}_4800" for size in (50, 64, 100)},
}
"""Settings of SGD on few labels whose corrupted images were evaluated after temperature scaling, pooled apart."""


def pairs(results: Path, images: str = "clean") -> Iterator[tuple[str, str, MethodPair]]:
    """The name, the files and the runs of each set that was evaluated on these images."""
    for title, precision, files, seeds in SETS:
        records = [record for method in PAIR for record in read_bundle(results / files.format(method))]
        runs = [record for record in records if _is_of_table_1(record["config"], precision, seeds)]
        if images == "clean" or all(image_sets(run) for run in runs):
            yield title, files, MethodPair.of(runs, baseline=PAIR[0], candidate=PAIR[1])


@cache
def pooled(results: Path, images: str = "clean") -> MethodPair:
    """All sets with these images as one pair; each of its runs is the mean of the runs of a seed."""
    return by_seed([pair for *_, pair in pairs(results, images)])


@cache
def pooled_scaled(results: Path, last_batch: str) -> MethodPair:
    """The settings of `SCALED` with this last batch as one pair, pooled by seed."""
    return by_seed([_of_setting(results, setting) for setting in SCALED[last_batch].values()])


def by_seed(sets: Iterable[MethodPair]) -> MethodPair:
    """One pair; each of its runs is the mean of the runs of a seed, over the images that all of these have."""
    named: dict[tuple[str, int], list[Record]] = {}
    for record in (record for pair in sets for record in pair.records):
        named.setdefault((record["config"]["method"], record["config"]["seed"]), []).append(record)
    means = [_mean(method, seed, same) for (method, seed), same in named.items()]
    return MethodPair.of(means, baseline=PAIR[0], candidate=PAIR[1])


def _of_setting(results: Path, setting: str) -> MethodPair:
    pair = reproduced(results, setting, *PAIR)
    assert pair is not None
    return pair


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


def corrupted_scaled(results: Path) -> str:
    """⊥Grad − SGD on corrupted images after temperature scaling, pooled and in each setting."""
    rows = []
    for last_batch, settings in SCALED.items():
        together = pooled_scaled(results, last_batch)
        rows.append(_scaled_row(f"**{last_batch}, pooled by seed**", together, "the settings below"))
        rows += [
            _scaled_row(title, _of_setting(results, setting), record_links(f"reproduction/{setting}-{{}}.json", PAIR))
            for title, setting in settings.items()
        ]
    header = ["last batch", "seeds", "accuracy ↑, points", "loss ↓", "ECE ↓", "Brier score ↓"]
    return markdown_table([*header, "p of ECE, not corrected", "record"], rows)


def _scaled_row(title: str, pair: MethodPair, record: str) -> list[str]:
    scaled = pair.tables["shifted-temperature-scaled"]
    # Temperature scaling does not change accuracy.
    accuracy = Effect.of(pair.tables["shifted"]["top1_accuracy"]).text(CONVENTIONS["top1_accuracy"].digits)
    effects = [Effect.of(scaled[metric]).text(CONVENTIONS[metric].digits) for metric in ("loss", "ece", "brier")]
    return [title, str(len(pair.seeds)), accuracy, *effects, p_text(scaled["ece"].p), record]


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


def _mean(method: str, seed: int, runs: list[Record]) -> dict[str, Any]:
    scaled: dict[str, Any] = {"metrics": _means(run["after_temperature"]["metrics"] for run in runs)}
    if all(run["after_temperature"].get("shifted") for run in runs):
        scaled["shifted"] = _means_of_sets([run["after_temperature"]["shifted"] for run in runs])
    return {
        "config": {"method": method, "seed": seed},
        "metrics": _means_of_sets([run["metrics"] for run in runs]),
        "after_temperature": scaled,
    }


def _means_of_sets(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The mean metrics of each image set that all runs have."""
    return {name: _means(run[name] for run in runs) for name in runs[0] if all(name in run for run in runs)}


def _means(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    every = list(metrics)
    names = [name for name in every[0] if all(is_number(each.get(name)) for each in every)]
    return {name: fmean(each[name] for each in every) for name in names}


def _is_of_table_1(config: Mapping[str, Any], precision: str, seeds: range) -> bool:
    if config["method"] not in PAIR or config["seed"] not in seeds:
        return False
    free = {name: config[name] for name in ("method", "seed", "shifts")}
    return bool(config == {**dataclasses.replace(PAPER, precision=precision).as_dict(), **free})
