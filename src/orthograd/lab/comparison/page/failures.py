"""Runs that failed, which the page has to do without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..pair import ArmPair
from .figure import table
from .markup import Markup, joined, tag


@dataclass(frozen=True)
class FailedRun:
    """Which run it was, the last line of its error, and where from the page the file with all of it is."""

    arm: str
    seed: int
    error: str
    file: str


def section(pair: ArmPair, names: tuple[str, str], failed: Sequence[FailedRun]) -> Markup | None:
    """Every failed run with its error and a link to the rest; None where all went well."""
    if not failed:
        return None
    named = dict(zip(pair.arms, names, strict=True))
    rows = [[f"{named[run.arm]}, seed {run.seed}", run.error, tag("a", "failure.txt", href=run.file)] for run in failed]
    left_out = sorted({run.seed for run in failed} - set(pair.seeds))
    seeds = f" Left out for that: seed{'s'[: len(left_out) - 1]} {', '.join(map(str, left_out))}." if left_out else ""
    return joined(
        tag("p", f"{count(failed)}.{seeds} The same command tries again.", class_="missing"),
        table("Runs that failed", ["run", "error", "all of it"], rows, label="Runs that failed", style="facts"),
    )


def count(failed: Sequence[FailedRun]) -> str:
    """How many, in words."""
    return f"{len(failed)} run{'s' * (len(failed) > 1)} failed"
