"""The runs of the comparison: failures, settings, versions, times, and their data as CSV files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....calibration import CONVENTIONS
from ...page.document import csv_text, downloads
from ...page.markup import Markup, joined, table, tag
from ...training.config import CHOICES, UNNAMED
from ..formats import IMAGES, as_csv
from ..pair import MethodPair
from ..records import Record, duration, image_sets


@dataclass(frozen=True)
class FailedRun:
    """A run that failed: its method and seed, the last line of its error, and the path of the traceback."""

    method: str
    seed: int
    error: str
    file: str


def failures_section(pair: MethodPair, names: tuple[str, str], failed: Sequence[FailedRun]) -> Markup | None:
    """Every failed run with its error and a link to the traceback; None where no run failed."""
    if not failed:
        return None
    named = dict(zip(pair.methods, names, strict=True))
    rows = [
        [f"{named[run.method]}, seed {run.seed}", run.error, tag("a", "failure.txt", href=run.file)] for run in failed
    ]
    left_out = sorted({run.seed for run in failed} - set(pair.seeds))
    seeds = f" Without seed{'s'[: len(left_out) - 1]} {', '.join(map(str, left_out))}." if left_out else ""
    return joined(
        tag("p", f"{failure_count(failed)}.{seeds} Run the command again to retry.", class_="missing"),
        table("Runs that failed", ["run", "error", "traceback"], rows, label="Runs that failed", style="facts"),
    )


def failure_count(failed: Sequence[FailedRun]) -> str:
    """The number of failed runs, in words."""
    return f"{len(failed)} run{'s' * (len(failed) > 1)} failed"


def setup_section(pair: MethodPair, names: tuple[str, str], command: str) -> Markup:
    """Settings, versions and the command that reproduces the runs."""
    return joined(
        table("Settings shared by all runs", ["setting", "value"], _settings(pair), label="Settings", style="facts"),
        _disagreements(pair),
        table(
            "Versions, hardware and time",
            ["item", "value"],
            _surroundings(pair),
            label="Versions, hardware and time",
            style="facts",
        ),
        tag("h3", "Reproduce"),
        tag("pre", tag("code", command), tabindex="0", role="region", aria_label="The command"),
        tag("p", _how(pair)),
        _runs(pair, names),
    )


def settings_of(pair: MethodPair) -> dict[str, Any]:
    """The settings that all runs share."""
    return {name: value for name, value in sorted(pair.baseline[0]["config"].items()) if name not in ("method", "seed")}


def _settings(pair: MethodPair) -> list[list[str]]:
    unnamed = {name: CHOICES[name][0] for name in UNNAMED}
    shown = {"seeds": ", ".join(map(str, pair.seeds)), **dict(sorted((unnamed | settings_of(pair)).items()))}
    evaluated = pair.baseline[0].get("evaluated")
    if evaluated:
        shown |= {"test samples": f"{evaluated['samples']:,}", "classes": evaluated["classes"]}
        shown["confidence bins"] = evaluated["bins"]
    return [[name.replace("_", " "), str(value)] for name, value in shown.items()]


def _surroundings(pair: MethodPair) -> list[list[str]]:
    rows = [[name.replace("_", " "), _values(values)] for name, values in _gathered(pair.records).items()]
    sizes = _values([_text(record["parameters"]) for record in pair.records if "parameters" in record])
    rows += [["parameters of the network", sizes]] if sizes else []
    return rows + [[f"{name}, time of a run", _spread(seconds)] for name, seconds in _seconds(pair.records).items()]


def _gathered(records: Iterable[Record]) -> dict[str, list[str]]:
    """Versions and hardware by name, one value per run."""
    texts: dict[str, list[str]] = {}
    for record in records:
        for part in ("versions", "hardware"):
            for name, value in sorted(record.get(part, {}).items()):
                texts.setdefault(name, []).append(_text(value))
    return texts


def _disagreements(pair: MethodPair) -> Markup | None:
    """A warning where runs have different versions or hardware, which alone can change results."""
    differing = [name for name, values in _gathered(pair.records).items() if len(set(values)) > 1]
    if not differing:
        return None
    return tag("p", f"The runs differ in {', '.join(differing)}; the table below counts them.", class_="missing")


def _seconds(records: Iterable[Record]) -> Mapping[str, list[float]]:
    times: dict[str, list[float]] = {}
    for record in records:
        for name, seconds in sorted(record.get("seconds", {}).items()):
            times.setdefault(name, []).append(seconds)
    return times


def _spread(seconds: list[float]) -> str:
    low, mean, high = map(duration, (min(seconds), sum(seconds) / len(seconds), max(seconds)))
    return f"{mean} on average, {low} to {high}"


def _values(values: list[str]) -> str:
    counts = Counter(values)
    if len(counts) < 2:
        return next(iter(counts), "")
    return "; ".join(f"{value} ({count} runs)" for value, count in counts.items())


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _how(pair: MethodPair) -> str:
    if pair.seeds != list(range(pair.seeds[0], pair.seeds[0] + len(pair.seeds))):
        return (
            "One command trains consecutive seeds, and the seeds of this page have gaps. Train each block with "
            "--first-seed into the same folder. The same versions on the same hardware give bit-identical results."
        )
    return (
        "The same versions on the same hardware give bit-identical results. On other hardware, rounding errors change "
        "the digits."
    )


def _runs(pair: MethodPair, names: tuple[str, str]) -> Markup:
    rows = [
        [f"{name}, seed {record['config']['seed']}", str(record.get("hash", "–")), _temperature(record)]
        for name, method in zip(names, (pair.baseline, pair.candidate), strict=True)
        for record in method
    ]
    listed = table("Every run", ["run", "hash of its config", "temperature"], rows, label="Every run")
    return tag("details", tag("summary", "Hash and temperature of every run"), listed)


def _temperature(record: Record) -> str:
    scaled = record["after_temperature"]
    return "–" if scaled is None else f"{scaled['temperature']:.4f}"


def downloads_section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """Links to CSV files, which are embedded in the page."""
    files = {
        "runs.csv": ("every metric of every run and image set, in full precision", runs_csv(pair)),
        "training.csv": ("the loss of every epoch of every run", training_csv(pair)),
    }
    for images, compared in pair.tables.items():
        text = as_csv(compared, baseline=names[0], candidate=names[1])
        files[f"comparison-{images}.csv"] = (f"the table above, {IMAGES[images]}", text)
    return downloads(files)


def runs_csv(pair: MethodPair) -> str:
    """CSV with a row for each run and image set."""
    metrics = [name for name in CONVENTIONS if name in pair.baseline[0]["metrics"]["clean"]]
    lines = [["method", "seed", "images", *metrics]]
    for record in pair.records:
        for images, metrics_of_set in _image_sets(record):
            lines.append([*_run(record), images, *(_cell(metrics_of_set.get(name)) for name in metrics)])
    return csv_text(lines)


def training_csv(pair: MethodPair) -> str:
    """CSV with a row for each run and epoch."""
    lines = [["method", "seed", "epoch", "loss"]]
    for record in pair.records:
        lines += [[*_run(record), str(i + 1), _cell(loss)] for i, loss in enumerate(record["losses"])]
    return csv_text(lines)


def _image_sets(record: Record) -> Iterator[tuple[str, Any]]:
    yield from ((name, record["metrics"][name]) for name in ("clean", *image_sets(record)))
    if record["after_temperature"] is not None:
        yield "clean.after_temperature", record["after_temperature"]["metrics"]
        for name, metrics in record["after_temperature"].get("shifted", {}).items():
            yield f"{name}.after_temperature", metrics


def _run(record: Record) -> list[str]:
    return [str(record["config"]["method"]), str(record["config"]["seed"])]


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
