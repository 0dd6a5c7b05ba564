"""The tables of docs/should-i-use-it.md: the effect of ⊥Grad on ECE and accuracy by setting, with a recommendation.

`recommendation` is the rule; docs/should-i-use-it.md states it in words. Differences are ⊥Grad − baseline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...calibration import CONVENTIONS
from ...lab.comparison.formats import metric_title
from ...lab.comparison.pair import MethodPair
from ...statistics.table import markdown_table
from ..evidence import title_of
from ..formats import signed
from ..plan import PAIR
from ..verdicts.claims import sections
from ..verdicts.numbers import differences, differences_of
from ..verdicts.primary import primary
from ..verdicts.rule import LEVEL
from ..verdicts.statements import POINT
from .effect import RECORDED, Effect, recorded_effects
from .last_batch import SIZES
from .method_tables import moment, reproduced
from .pooled_runs import SCALED, pooled, pooled_scaled, record_links

SMALL = POINT["ece"]
"""A difference in ECE that is too small to matter, as in the verdicts on the paper's claims."""
FEW_SEEDS = 10
"""With fewer seeds than this, "no difference detected" is called inconclusive."""
STUDIED = {
    "clean.top1_accuracy": "top1_accuracy",
    "clean.loss": "loss",
    "clean.ece": "ece",
    "after_temperature.ece": "ece_scaled",
}
"""The rows of the primary comparison that docs/results/when.json has."""
HEADER = ("setting", "seeds", "ECE ↓, difference", "accuracy ↑, difference in points", "recommendation")
TABLE_1 = {
    "clean.top1_accuracy": " ↑",
    "clean.loss": " ↓",
    "clean.ece": " ↓",
    "clean.max_softmax": "",
    "clean.max_logit": "",
}
"""Rows of the paper's table 1 in README, each with an arrow for its good direction."""


@dataclass(frozen=True)
class Setting:
    """A setting in which ⊥Grad was tried: its title, number of seeds, and effects."""

    title: str
    seeds: int
    ece: Effect
    accuracy: Effect


def recommendation(setting: Setting) -> str:
    """The recommendation for a setting.

    Advice to use ⊥Grad needs a corrected p below 0.05. A warning needs less: a 95% interval on the wrong side of zero.

    >>> from orthograd.statistics import Interval
    >>> ece, accuracy = Effect(-0.02, Interval(-0.03, -0.01), 0.001, 0.01), Effect(0.1, Interval(-0.5, 0.7), 0.7, 1.0)
    >>> recommendation(Setting("", 10, ece, accuracy))
    'try it'
    """
    if setting.ece.is_above_zero:
        return "do not use"
    if setting.ece.is_below_zero and setting.ece.corrected_p < LEVEL:
        if setting.ece.interval.low > -SMALL and not setting.accuracy.is_below_zero:
            return f"little to gain: ECE lower by less than {SMALL:g}"
        return "weigh it: lower ECE, lower accuracy" if setting.accuracy.is_below_zero else "try it"
    if setting.accuracy.is_below_zero:
        return "do not use"
    if setting.ece.is_below_zero:
        return f"looks better, inconclusive at n = {setting.seeds}"
    return "no difference detected" if setting.seeds >= FEW_SEEDS else f"inconclusive at n = {setting.seeds}"


@dataclass(frozen=True)
class Source:
    """A row of the table: a function that reads its setting (None without runs), and a link to the records it reads.

    ``in_readme`` is true if README has the row.
    """

    read: Callable[[Path], Setting | None]
    record: str
    in_readme: bool = False


def of_runs(
    title: str,
    setting: str,
    *,
    images: str = "clean",
    methods: tuple[str, str] = ("baseline", "orthograd"),
    readme: bool = False,
) -> Source:
    """A row from a setting of the reproduction: two methods over the same seeds."""

    def read(results: Path) -> Setting | None:
        pair = reproduced(results, setting, *methods)
        return None if pair is None else _setting(title, pair, images)

    return Source(read, record_links(f"reproduction/{setting}-{{}}.json", methods), readme)


def of_sets(title: str, *, images: str = "clean", readme: bool = False) -> Source:
    """A row from all sets of runs of table 1 with these images, pooled by seed."""
    sets = "shifted" if images == "shifted" else "clean"
    link = "[all sets](#all-sets-of-runs-of-table-1)"
    return Source(lambda results: _setting(title, pooled(results, sets), images), link, readme)


def of_scaled(title: str, last_batch: str) -> Source:
    """A row on corrupted images after temperature scaling, pooled by seed over the settings with this last batch."""
    link = f"[{len(SCALED[last_batch])} settings](#corrupted-images-after-temperature-scaling)"
    images = "shifted_after_temperature"
    return Source(lambda results: _setting(title, pooled_scaled(results, last_batch), images), link)


def _setting(title: str, pair: MethodPair, images: str) -> Setting:
    rows = primary(pair)
    return Setting(title, len(pair.seeds), *(Effect.of(rows[name]) for name in _names(images)))


def _names(images: str) -> tuple[str, str]:
    """ECE and accuracy, which temperature scaling does not change."""
    return f"{images}.ece", f"{'shifted' if images.startswith('shifted') else 'clean'}.top1_accuracy"


def of_comparison(title: str, name: str, images: str, *, readme: bool = False) -> Source:
    """A row from a record of `orthograd compare` on digits."""

    def read(results: Path) -> Setting:
        record = json.loads((results / f"compare/digits-{name}.json").read_text(encoding="utf-8"))
        effects = recorded_effects(record["tables"])
        return Setting(title, len(record["seeds"]), *(effects[each] for each in _names(images)))

    return Source(read, f"[both](results/compare/digits-{name}.json)", readme)


def of_study(title: str, case: str, stop: int, *, readme: bool = False) -> Source:
    """A row from a case of docs/results/when.json after some epochs."""

    def read(results: Path) -> Setting:
        record = json.loads((results / "when.json").read_text(encoding="utf-8"))
        first, second = (
            [moment(run, record["epochs"], stop) for run in runs] for runs in record["runs"][case].values()
        )
        rows = differences(
            {name: ([at[key] for at in first], [at[key] for at in second]) for name, key in STUDIED.items()}
        )
        return Setting(title, len(first), *(Effect.of(rows[name]) for name in _names("clean")))

    return Source(read, "[both](results/when.json)", readme)


SOURCES = (
    of_sets("ResNet-18, few labels, clean images", readme=True),
    of_sets("ResNet-18, few labels, corrupted images", images="shifted", readme=True),
    of_sets("ResNet-18, few labels, clean images after temperature scaling", images="after_temperature", readme=True),
    *(
        of_scaled(f"ResNet-18, few labels, {last_batch}, corrupted images after temperature scaling", last_batch)
        for last_batch in SCALED
    ),
    of_runs("ResNet-18, few labels, 1000 epochs", "resnet18_1000_epochs"),
    of_runs("ResNet-18, few labels, small last batch dropped", "resnet18_drop", readme=True),
    *(
        of_runs(f"ResNet-18, few labels, {title}, no small last batch", f"resnet18_batch{size}_4800")
        for title, size in SIZES.items()
    ),
    of_runs("ResNet-18, all 50,000 labels", "resnet18_all_labels", readme=True),
    of_runs("ResNet-50, few labels", "resnet50", readme=True),
    of_runs("WideResNet-28-10, few labels", "wide_resnet28_10"),
    of_runs("ResNet-18, AdamW instead of SGD", "resnet18_adamw"),
    of_runs("ResNet-18, AdamW, small last batch dropped", "resnet18_adamw_drop"),
    of_runs("ResNet-18, AdamW with SGD's decay (0.05)", "resnet18_adamw_matched"),
    of_runs(
        "ResNet-18, weight decay on convolutions only",
        "resnet18_bf16",
        methods=("decay_conv_only", "decay_conv_only_orthograd"),
    ),
    of_runs("ResNet-18, ⊥Grad on the last layer only", "resnet18_bf16", methods=("baseline", "orthograd_head")),
    *(
        of_runs(f"ResNet-18, on top of {title}", "resnet18_bf16", methods=(name, f"{name}_orthograd"))
        for name, title in {"label_smoothing": "label smoothing", "focal": "focal loss", "mixup": "mixup"}.items()
    ),
    of_comparison("digits, small plain CNN, 300 epochs", "cnn", "clean", readme=True),
    of_comparison("digits, small plain CNN, after temperature scaling", "cnn", "after_temperature"),
    of_comparison("digits, small plain CNN, corrupted images", "cnn", "shifted"),
    of_study("digits, small plain CNN, 56 epochs (short training)", "plain CNN", 56),
    of_comparison("digits, small BatchNorm CNN, 300 epochs", "cnn_batchnorm", "clean", readme=True),
    of_comparison("digits, small BatchNorm CNN, corrupted images", "cnn_batchnorm", "shifted"),
    *(
        of_comparison(
            f"digits, {title}, corrupted images after temperature scaling, seeds 10 to 29",
            f"{name}-again",
            "shifted_after_temperature",
        )
        for name, title in {"cnn": "small plain CNN", "cnn_batchnorm": "small BatchNorm CNN"}.items()
    ),
)
"""The rows of the table, in order."""


def advised(results: Path) -> Iterator[tuple[Source, Setting, str]]:
    """Every setting that has runs, with its source and recommendation."""
    for source in SOURCES:
        setting = source.read(results)
        if setting is not None:
            yield source, setting, recommendation(setting)


def advice(results: Path) -> str:
    """The table of docs/should-i-use-it.md: all rows, with links to their records."""
    rows = ([*_cells(setting, words), source.record] for source, setting, words in advised(results))
    return markdown_table([*HEADER, "record"], rows)


def advice_short(results: Path) -> str:
    """The table of README.md: the rows that it quotes."""
    rows = (_cells(setting, words) for source, setting, words in advised(results) if source.in_readme)
    return markdown_table(HEADER, rows)


def table1(results: Path) -> str:
    """Five rows of the paper's table 1 beside ours."""
    pair = reproduced(results, "resnet18", *PAIR)
    assert pair is not None
    printed = [row for row in sections()["table1_resnet18"].rows if row.quantity in TABLE_1]
    ours = differences_of(pair, [row.quantity for row in printed])
    rows = []
    for theirs in printed:
        digits, row = theirs.baseline.digits, ours[theirs.quantity]
        means = (f"{mean:.{digits}f}" for mean in (row.baseline.mean, row.candidate.mean))
        paper = signed(theirs.candidate.value - theirs.baseline.value, digits)
        rows.append(
            [f"{title_of(theirs.quantity)}{TABLE_1[theirs.quantity]}", *means, Effect.of(row).text(digits), paper]
        )
    header = ["", "SGD", "⊥Grad", f"⊥Grad − SGD (95% interval, n = {len(pair.seeds)})", "paper: ⊥Grad − SGD"]
    return markdown_table(header, rows)


COMPARED = {
    "clean": "clean",
    "temperature-scaled": "clean, after temperature scaling",
    "shifted": "corrupted",
    "shifted-temperature-scaled": "corrupted, after temperature scaling",
}


def comparisons(results: Path) -> str:
    """The results of `orthograd compare` for the plain and the BatchNorm CNN on digits, and again with new seeds."""
    rows, sets = [], ("", "-again")
    for name, title in (("cnn", "plain CNN"), ("cnn_batchnorm", "BatchNorm CNN")):
        records = [
            json.loads((results / f"compare/digits-{name}{which}.json").read_text(encoding="utf-8")) for which in sets
        ]
        effects = [recorded_effects(record["tables"]) for record in records]
        for images, described in COMPARED.items():
            # Temperature scaling does not change accuracy.
            for metric in ("loss", "ece") if "scaled" in images else ("top1_accuracy", "loss", "ece"):
                digits, quantity = CONVENTIONS[metric].digits, f"{RECORDED[images]}.{metric}"
                mean = records[0]["tables"][images][metric]["baseline"]["mean"]
                found = [cell for each in effects for cell in (each[quantity].text(digits), each[quantity].verdict)]
                rows.append([title, described, metric_title(metric), f"{mean:.{digits}f}", *found])
    header = ["network", "images", "metric", "SGD", "⊥Grad − SGD, seeds 0 to 9", "verdict"]
    return markdown_table([*header, "⊥Grad − SGD, seeds 10 to 29", "verdict"], rows)


def _cells(setting: Setting, words: str) -> list[str]:
    return [setting.title, str(setting.seeds), setting.ece.text(3), setting.accuracy.text(2), words]
