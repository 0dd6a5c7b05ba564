"""The runs of a comparison that failed, as their folders tell."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ..experiment.plain import read_object
from ..experiment.record import CONFIG, FAILURE, RECORD
from ..report.comparison import ArmPair
from ..report.page import FailedRun

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
