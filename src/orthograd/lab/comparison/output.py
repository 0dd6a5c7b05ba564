"""What a comparison writes and prints: tables for people and programs, figures, the page, and runs that failed."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from ...calibration import CONVENTIONS, ReliabilityCurve
from ...statistics import ComparisonTable
from ..files import replacing, write_text
from ..jobs.files import read_object
from ..jobs.record import CONFIG, FAILURE, RECORD
from ..training.arms import ARMS
from ..training.config import Config, recipe
from .formats import TITLES, as_csv, latex, markdown, tex
from .page.document import page
from .page.failures import FailedRun
from .pair import ArmPair, verdict
from .values import by_severity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("top1_accuracy", "loss", "ece", "max_softmax")
Tables = Mapping[str, ComparisonTable]


def write_comparison(
    pair: ArmPair, names: tuple[str, str], folder: Path, *, failed: Sequence[FailedRun] = ()
) -> list[Path]:
    """Write report.html, comparison.json, .md, .tex and .csv, and PNG figures; each whole or not at all."""
    pass

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
    from ...figures.composition import reliability_figure
    from ...figures.severity import severity_figure  # with matplotlib, which takes a while

    arms = dict(zip(names, (pair.baseline, pair.candidate), strict=True))
    curves = {
        name: [ReliabilityCurve.from_dict(record["reliability"]["clean"]) for record in arm]
        for name, arm in arms.items()
    }
    written = [_write_figure(folder / "reliability.png", reliability_figure(curves))]
    if pair.is_shifted:
        by_metric = {metric: {name: by_severity(arm, metric) for name, arm in arms.items()} for metric in SHOWN}
        written.append(_write_figure(folder / "severity.png", severity_figure(by_metric)))
    return written


def _write_figure(path: Path, figure: Figure) -> Path:
    from ...figures.style import save_figure

    with replacing(path) as unfinished:
        save_figure(figure, unfinished)
    return path


def comparison_page(pair: ArmPair, failed: Sequence[FailedRun] = ()) -> str:
    """The page as HTML: the same whether `orthograd compare` or `orthograd report` makes it."""
    return page(pair, names=names_of(pair), command=command_of(pair), failed=failed)


def names_of(pair: ArmPair) -> tuple[str, str]:
    """What people call the two arms."""
    baseline, candidate = (ARMS[arm].title if arm in ARMS else arm for arm in pair.arms)
    return baseline, candidate


def command_of(pair: ArmPair) -> str:
    """The command line that makes these runs, with the settings that are not those of the data set's recipe."""
    config = Config.from_dict(dict(pair.baseline[0]["config"]) | {"arm": "baseline", "seed": 0})
    usual = recipe(config.dataset).as_dict() | {"dataset": "digits"}
    if config.device == "cuda":
        usual["precision"] = "tf32"
    seeds = {"seeds": len(pair.seeds), "first_seed": pair.seeds[0]}
    options = seeds | {"baseline": pair.arms[0], "candidate": pair.arms[1]} | config.as_dict()
    known = {"first_seed": 0, "baseline": "baseline", "candidate": "orthograd"} | usual
    words = ["orthograd", "compare"]
    for name, value in options.items():
        if name == "shifts" and value == "cifar10c":
            words.append("--corruptions")
        elif value != known.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def print_results(console: Console, pair: ArmPair, folder: Path) -> None:
    """Test the difference, print it, and write it down."""
    names, failed = names_of(pair), failed_runs(folder / "runs", pair, folder / "report.html")
    for title, table in pair.tables.items():
        console.print(_table(title, table, names))
    written = write_comparison(pair, names, folder, failed=failed)
    console.print(verdict(pair.tables["clean"], baseline=names[0], candidate=names[1]))
    if failed:
        console.print(f"Without {len(failed)} runs that failed: the page names them and leads to their logs.")
    console.print(f"The page: {written[0]}", f"Also written: {', '.join(path.name for path in written[1:])}", sep="\n")


def _table(title: str, table: ComparisonTable, names: tuple[str, str]) -> Table:
    """What fits a terminal: means, effect, corrected p and verdict; the files have the rest."""
    shown = Table("metric", *names, "d", "p, Holm", "verdict", title=f"{title} test images", title_justify="left")
    inks = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "dim"}
    for row in table:
        metric = str(row.metric)
        digits = CONVENTIONS[metric].digits
        means = [f"{arm.mean:.{digits}f}" for arm in (row.baseline, row.candidate)]
        effect = f"{row.cohens_d.value:+.2f}"
        shown.add_row(
            TITLES[metric], *means, effect, f"{row.corrected_p:.2g}", row.verdict, style=inks.get(row.verdict, "")
        )
    return shown


LONGEST = 300  # signs of an error that a page shows; the file has the rest


def failed_runs(store: Path, pair: ArmPair, page: Path) -> list[FailedRun]:
    """Those that share all but arm and seed with the runs of a pair, in order; their links lead there from the page."""
    found, shared = [], _shared(pair.baseline[0]["config"])
    for file in store.glob(f"*/{FAILURE}"):
        if (file.parent / RECORD).exists():  # another process has finished it meanwhile
            continue
        config = read_object(file.parent / CONFIG)
        if config.get("arm") in pair.arms and _shared(config) == shared:
            found.append(FailedRun(config["arm"], config["seed"], _last_line(file), _link(file, page)))
    return sorted(found, key=lambda run: (pair.arms.index(run.arm), run.seed))


def _shared(config: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name not in ("arm", "seed")}


def _last_line(file: Path) -> str:
    """What was raised, as a rule: a traceback ends so."""
    last = file.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    line = "".join(sign if sign.isprintable() else " " for sign in last)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


def _link(file: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())
