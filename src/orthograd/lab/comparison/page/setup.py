"""How it was made: settings, versions, hardware, time, and how to make it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..pair import ArmPair
from ..values import Record, duration
from .figure import table
from .markup import Markup, joined, tag


def section(pair: ArmPair, names: tuple[str, str], command: str) -> Markup:
    """What another person needs to get the same."""
    return joined(
        table(
            "Settings, the same for every run", ["setting", "value"], _settings(pair), label="Settings", style="facts"
        ),
        _disagreements(pair),
        table(
            "Versions, hardware and time",
            ["what", "value"],
            _surroundings(pair),
            label="Versions, hardware and time",
            style="facts",
        ),
        tag("h3", "Again, from the start"),
        tag("pre", tag("code", command), tabindex="0", role="region", aria_label="The command"),
        tag("p", _how(pair)),
        _runs(pair, names),
    )


def settings_of(pair: ArmPair) -> dict[str, Any]:
    """What all runs share."""
    return {name: value for name, value in sorted(pair.baseline[0]["config"].items()) if name not in ("arm", "seed")}


def _settings(pair: ArmPair) -> list[list[str]]:
    shown = {"seeds": ", ".join(map(str, pair.seeds)), **settings_of(pair)}
    evaluated = pair.baseline[0].get("evaluated")
    if evaluated:
        shown |= {"test images": f"{evaluated['samples']:,}", "classes": evaluated["classes"]}
        shown["bins of confidence"] = evaluated["bins"]
    return [[name.replace("_", " "), str(value)] for name, value in shown.items()]


def _surroundings(pair: ArmPair) -> list[list[str]]:
    found = [[name.replace("_", " "), _values(values)] for name, values in _gathered(pair.records).items()]
    sizes = _values([_text(record["parameters"]) for record in pair.records if "parameters" in record])
    found += [["parameters of the network", sizes]] if sizes else []
    return found + [[f"{name}, time of a run", _spread(seconds)] for name, seconds in _seconds(pair.records).items()]


def _gathered(records: Iterable[Record]) -> dict[str, list[str]]:
    """Every version and every piece of hardware, as each run states it."""
    found: dict[str, list[str]] = {}
    for record in records:
        for part in ("versions", "hardware"):
            for name, value in sorted(record.get(part, {}).items()):
                found.setdefault(name, []).append(_text(value))
    return found


def _disagreements(pair: ArmPair) -> Markup | None:
    """Said before the table, since runs made elsewhere may differ for that reason alone."""
    differing = [name for name, values in _gathered(pair.records).items() if len(set(values)) > 1]
    if not differing:
        return None
    return tag("p", f"The runs do not agree in {', '.join(differing)}: see how many had which below.", class_="missing")


def _seconds(records: Iterable[Record]) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, seconds in sorted(record.get("seconds", {}).items()):
            found.setdefault(name, []).append(seconds)
    return found


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


def _how(pair: ArmPair) -> str:
    if pair.seeds != list(range(pair.seeds[0], pair.seeds[0] + len(pair.seeds))):
        return (
            "One command trains seeds in a row. Those of this page have gaps: train each row of them with --first-seed "
            "into the same folder. With the same versions on the same hardware a seed gives the same bits."
        )
    return (
        "With the same versions on the same hardware this gives the same bits; elsewhere it gives the same up to "
        "rounding and its consequences."
    )


def _runs(pair: ArmPair, names: tuple[str, str]) -> Markup:
    rows = [
        [f"{name}, seed {record['config']['seed']}", str(record.get("hash", "–")), _temperature(record)]
        for name, arm in zip(names, (pair.baseline, pair.candidate), strict=True)
        for record in arm
    ]
    listed = table("Every run", ["run", "hash of its config", "temperature"], rows, label="Every run")
    return tag("details", tag("summary", "Every run: hashes and temperatures"), listed)


def _temperature(record: Record) -> str:
    scaled = record["after_temperature"]
    return "–" if scaled is None else f"{scaled['temperature']:.4f}"
