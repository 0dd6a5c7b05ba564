"""The output of a comparison: tables, figures and the report page, for `orthograd compare` and `orthograd report`."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ...calibration import CONVENTIONS, ReliabilityCurve
from ...statistics import ComparisonTable
from ..files import replacing, write_text
from ..jobs.files import canonical_json, read_object
from ..jobs.record import CONFIG, FAILURE, RECORD
from ..training.config import Config, recipe
from ..training.methods import METHODS
from .formats import IMAGES, as_csv, caption, latex, markdown, metric_title, tex
from .page.document import page
from .page.runs import FailedRun
from .pair import MethodPair, verdict
from .records import Record, by_severity, store_in, stored_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("top1_accuracy", "loss", "ece", "max_softmax")
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}
Tables = Mapping[str, ComparisonTable]


def write_comparison(
    pair: MethodPair, names: tuple[str, str], folder: Path, *, failed: Sequence[FailedRun] = ()
) -> list[Path]:
    """Write report.html, comparison.json, .md, .tex and .csv, and PNG figures, each atomically; their paths."""
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


def _summary(pair: MethodPair, tables: Tables, names: tuple[str, str], failed: Sequence[FailedRun]) -> dict[str, Any]:
    missing = {"failed": [[run.method, run.seed] for run in failed]} if failed else {}
    return {
        "verdict": verdict(tables["clean"], baseline=names[0], candidate=names[1]),
        "seeds": pair.seeds,
        "config": _shared(pair.baseline[0]["config"]),
        "methods": list(pair.methods),
        "differences": "candidate − baseline",
        "tables": {title: table.as_dict() for title, table in tables.items()},
        **missing,
    }


def _document(tables: Tables, names: tuple[str, str]) -> str:
    baseline, candidate = names
    summary = verdict(tables["clean"], baseline=baseline, candidate=candidate)
    return f"{summary}\n\n{caption(baseline, candidate)}\n" + "".join(
        f"\n## {IMAGES[images].capitalize()}\n\n{markdown(table, baseline=baseline, candidate=candidate)}"
        for images, table in tables.items()
    )


def _latex(tables: Tables, names: tuple[str, str], seeds: int) -> str:
    """A float with a caption for each table."""
    columns = (
        f"mean ± SD of {seeds} seeds, paired difference with its 95% interval, Cohen's d and p with Holm's correction. "
        f"{caption(*names)}"
    )
    return "% needs \\usepackage{booktabs,graphicx}\n" + "".join(
        f"\n\\begin{{table}}[ht]\n\\caption{{{tex(f'{IMAGES[images].capitalize()}: {columns}')}}}\n"
        f"{latex(table, baseline=names[0], candidate=names[1])}\\end{{table}}\n"
        for images, table in tables.items()
    )


def _figures(pair: MethodPair, names: tuple[str, str], folder: Path) -> list[Path]:
    from ...figures.reliability import reliability_figure  # imports matplotlib, which is slow
    from ...figures.severity import severity_figure

    methods = dict(zip(names, (pair.baseline, pair.candidate), strict=True))
    curves = {
        name: [ReliabilityCurve.from_dict(record["reliability"]["clean"]) for record in method]
        for name, method in methods.items()
    }
    written = [_write_figure(folder / "reliability.png", reliability_figure(curves))]
    if pair.is_shifted:
        by_metric = {
            metric: {name: by_severity(method, metric) for name, method in methods.items()} for metric in SHOWN
        }
        written.append(_write_figure(folder / "severity.png", severity_figure(by_metric)))
    return written


def _write_figure(path: Path, figure: Figure) -> Path:
    from ...figures.style import save_figure

    with replacing(path) as unfinished:
        save_figure(figure, unfinished)
    return path


def comparison_page(pair: MethodPair, failed: Sequence[FailedRun] = ()) -> str:
    """The report page as HTML, for `orthograd compare` and `orthograd report`."""
    return page(pair, names=names_of(pair), command=command_of(pair), failed=failed)


def names_of(pair: MethodPair) -> tuple[str, str]:
    """The titles of the two methods; the plain one has the name of its optimizer."""
    optimizer = OPTIMIZERS[_config(pair).optimizer]
    titles = {name: method.title for name, method in METHODS.items()} | {"baseline": optimizer}
    baseline, candidate = (titles.get(method, method) for method in pair.methods)
    return baseline, candidate


def command_of(pair: MethodPair) -> str:
    """The command line that reproduces the runs, with every setting that differs from the data set's recipe."""
    config = _config(pair)
    usual = recipe(config.dataset).as_dict() | {"dataset": "digits"}
    if config.device == "cuda":
        usual["precision"] = "tf32"
    seeds = {"seeds": len(pair.seeds), "first_seed": pair.seeds[0]}
    options = seeds | {"baseline": pair.methods[0], "candidate": pair.methods[1]} | config.as_dict()
    known = {"first_seed": 0, "baseline": "baseline", "candidate": "orthograd"} | usual
    words = ["orthograd", "compare"]
    for name, value in options.items():
        if name == "shifts" and value == "cifar10c":
            words.append("--corruptions")
        elif value != known.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _config(pair: MethodPair) -> Config:
    """The settings that all runs share, with a method and a seed that are the same for every pair."""
    return Config.from_dict(dict(pair.baseline[0]["config"]) | {"method": "baseline", "seed": 0})


def print_results(console: Console, pair: MethodPair, folder: Path) -> None:
    """Print the tables and the verdict, and write all files."""
    names, failed = names_of(pair), failed_runs(folder / "runs", pair, folder / "report.html")
    for title, table in pair.tables.items():
        console.print(console_table(IMAGES[title], table, names))
    written = write_comparison(pair, names, folder, failed=failed)
    console.print(verdict(pair.tables["clean"], baseline=names[0], candidate=names[1]))
    if failed:
        console.print(f"{len(failed)} runs failed and are not included; the report links to their logs.")
    console.print(f"Report: {written[0]}", f"Also written: {', '.join(path.name for path in written[1:])}", sep="\n")


def console_table(title: str, table: ComparisonTable, names: tuple[str, str]) -> Table:
    """A table that fits a terminal: means, difference, corrected p and verdict."""
    shown = Table(
        *("metric", *names, f"{names[1]} − {names[0]}", "p (Holm)", "verdict"),
        title=title.capitalize(),
        title_justify="left",
        caption=caption(*names),
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    inks = {"better": "green", "worse": "red", "equivalent": "cyan", "inconclusive": "dim"}
    for row in table:
        metric = str(row.metric)
        digits = CONVENTIONS[metric].digits
        means = [f"{method.mean:.{digits}f}" for method in (row.baseline, row.candidate)]
        numbers = *means, f"{row.difference:+.{digits}f}", f"{row.corrected_p:.2g}"
        shown.add_row(metric_title(metric), *numbers, row.verdict, style=inks.get(row.verdict, ""))
    return shown


LONGEST = 300  # characters of an error that a page shows


def failed_runs(store: Path, pair: MethodPair, page: Path) -> list[FailedRun]:
    """Failed runs with the settings of a pair, by method and seed; links to their files are relative to the page."""
    runs, shared = [], _shared(pair.baseline[0]["config"])
    for file in store.glob(f"*/{FAILURE}"):
        if (file.parent / RECORD).exists():  # another process has finished it since
            continue
        config = read_object(file.parent / CONFIG)
        if config.get("method") in pair.methods and _shared(config) == shared:
            runs.append(FailedRun(config["method"], config["seed"], _last_line(file), _link(file, page)))
    return sorted(runs, key=lambda run: (pair.methods.index(run.method), run.seed))


def _shared(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the runs of a comparison share."""
    return {name: value for name, value in config.items() if name not in ("method", "seed")}


def _last_line(file: Path) -> str:
    """The last line of a traceback: the exception and its message."""
    last = file.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    line = "".join(sign if sign.isprintable() else " " for sign in last)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


def _link(file: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())


def write_pages(
    folder: Path, *, baseline: str, candidate: str | None, settings: Mapping[str, str | None], out: Path | None
) -> list[Path]:
    """Write report.html, or a page for each comparison in the folder; their paths."""
    wanted = {name: value for name, value in settings.items() if value is not None}
    records = [record for record in stored_records(folder) if wanted.items() <= record["config"].items()]
    pairs = _comparisons(records, baseline=baseline, candidate=candidate)
    if not pairs:
        raise ValueError(
            f"expected two seeds or more of {baseline} and of {candidate or 'another method'} with the same settings, "
            f"got {_seen(records)}"
        )
    paths = _paths(_page_names(pairs), _home(folder) if out is None else out)
    return [
        write_text(path, comparison_page(pair, failed_runs(store_in(folder), pair, path)))
        for path, pair in zip(paths, pairs, strict=True)
    ]


def _paths(names: Sequence[str], target: Path) -> list[Path]:
    """The paths of the pages: in a folder, or the one file that was asked for."""
    if target.is_dir() or not target.suffix:
        return [target / name for name in names]
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"expected an existing folder or a file name that ends in .html, got {target}")
    if len(names) > 1:
        raise ValueError(f"expected a folder for {len(names)} pages ({', '.join(names)}), got the file {target}")
    return [target]


def _comparisons(records: Iterable[Record], *, baseline: str, candidate: str | None) -> list[MethodPair]:
    """The baseline paired with each other method, or with the one asked for, among runs with the same settings."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(canonical_json(_shared(record["config"])), []).append(record)
    pairs = []
    for _, runs in sorted(groups.items()):
        methods = sorted({str(run["config"]["method"]) for run in runs} - {baseline})
        pairs += [MethodPair.if_enough(runs, baseline, method) for method in methods if candidate in (None, method)]
    return [pair for pair in pairs if pair is not None]


def _page_names(pairs: Sequence[MethodPair]) -> list[str]:
    """report.html for one page; for several, names with the settings that differ."""
    if len(pairs) == 1:
        return ["report.html"]
    configs = [{**pair.candidate[0]["config"], "seed": None} for pair in pairs]
    apart = [name for name in configs[0] if len({str(config.get(name)) for config in configs}) > 1]
    pages: list[str] = []
    for config in configs:
        words = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", str(config.get(name))) for name in apart)
        same = sum(name == f"report-{words}.html" or name.startswith(f"report-{words}--") for name in pages)
        pages.append(f"report-{words}.html" if not same else f"report-{words}--{same + 1}.html")
    return pages


def _home(folder: Path) -> Path:
    """The folder for the pages: beside the runs, not among them."""
    is_store = not (folder / "runs").is_dir() and any(folder.glob("*/record.json"))
    return folder.absolute().parent if is_store else folder


def _seen(records: Sequence[Record]) -> str:
    """The methods in the records, with their numbers of runs."""
    methods = [str(record["config"]["method"]) for record in records]
    return (
        ", ".join(f"{methods.count(method)} of {method}" for method in sorted(set(methods)))
        or "no run with these settings"
    )
