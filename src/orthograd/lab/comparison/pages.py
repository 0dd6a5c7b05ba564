"""How `orthograd report` goes about it: read, group into comparisons, write a page for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import write_text
from ..jobs.files import canonical_json
from .output import comparison_page, failed_runs
from .pair import ArmPair
from .records import store_in, stored_records

Record = Mapping[str, Any]


def write_pages(
    folder: Path, *, baseline: str, candidate: str | None, settings: Mapping[str, str | None], out: Path | None
) -> list[Path]:
    """Write report.html, or a page for each comparison where there are several; the paths."""
    wanted = {name: value for name, value in settings.items() if value is not None}
    records = [record for record in stored_records(folder) if wanted.items() <= record["config"].items()]
    pairs = comparisons(records, baseline=baseline, candidate=candidate)
    if not pairs:
        raise ValueError(
            f"expected two seeds or more of {baseline} and of {candidate or 'another arm'} that share all else, "
            f"got {_seen(records)}"
        )
    paths = _paths(page_names(pairs), home(folder) if out is None else out)
    return [
        write_text(path, comparison_page(pair, failed_runs(store_in(folder), pair, path)))
        for path, pair in zip(paths, pairs, strict=True)
    ]


def _paths(names: Sequence[str], target: Path) -> list[Path]:
    """Pages in a folder, or one page as the file that was asked for."""
    if target.is_dir() or not target.suffix:
        return [target / name for name in names]
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"expected a folder that is there, or a page that ends in .html, got {target}")
    if len(names) > 1:
        raise ValueError(f"expected a folder for {len(names)} pages ({', '.join(names)}), got the file {target}")
    return [target]


def comparisons(records: Iterable[Record], *, baseline: str, candidate: str | None) -> list[ArmPair]:
    """The baseline with each other arm (or the one asked for) among runs that share all but arm and seed."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        shared = {name: value for name, value in record["config"].items() if name not in ("arm", "seed")}
        groups.setdefault(canonical_json(shared), []).append(record)
    found = []
    for _, runs in sorted(groups.items()):
        arms = sorted({str(run["config"]["arm"]) for run in runs} - {baseline})
        found += [ArmPair.if_enough(runs, baseline, arm) for arm in arms if candidate in (None, arm)]
    return [pair for pair in found if pair is not None]


def page_names(pairs: Sequence[ArmPair]) -> list[str]:
    """report.html for one; for several, what sets each apart in its name."""
    if len(pairs) == 1:
        return ["report.html"]
    configs = [{**pair.candidate[0]["config"], "seed": None} for pair in pairs]
    apart = [name for name in configs[0] if len({str(config.get(name)) for config in configs}) > 1]
    found: list[str] = []
    for config in configs:
        words = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", str(config.get(name))) for name in apart)
        same = sum(name == f"report-{words}.html" or name.startswith(f"report-{words}--") for name in found)
        found.append(f"report-{words}.html" if not same else f"report-{words}--{same + 1}.html")
    return found


def home(folder: Path) -> Path:
    """Where pages belong: beside the runs, not among them."""
    is_store = not (folder / "runs").is_dir() and any(folder.glob("*/record.json"))
    return folder.absolute().parent if is_store else folder


def _seen(records: Sequence[Record]) -> str:
    """The arms there are and how many runs each has."""
    arms = [str(record["config"]["arm"]) for record in records]
    return ", ".join(f"{arms.count(arm)} of {arm}" for arm in sorted(set(arms))) or "no run with these settings"
