"""What `orthograd reproduce --dry-run` shows: runs done and missing, and the GPU time that these take."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ..paper.cost import MEASURED, Rates, rates
from ..paper.evidence import Evidence, runs_of
from ..paper.experiments import Experiment
from ..report.values import duration
from ..training import Config


def print_reproduction_plan(console: Console, experiments: Sequence[Experiment], evidence: Evidence) -> None:
    """A line for each experiment; runs that an earlier line counts are not counted again."""
    speed, seen = rates(evidence.records.values()), set[str]()
    table = Table("experiment", "runs", "done", "shared with the above", "missing", "time", title="The plan")
    whole: list[Config] = []
    for experiment in experiments:
        configs = runs_of(experiment, evidence.scale)
        left = [config for name, config in configs.items() if name not in evidence.records and name not in seen]
        shared = sum(name in seen for name in configs)
        done = sum(name in evidence.records and name not in seen for name in configs)
        cells = [len(configs), done, shared, len(left)]
        table.add_row(experiment.name, *map(str, cells), time_of(left, speed))
        whole += left
        seen.update(configs)
    console.print(table)
    console.print(
        f"{len(whole)} runs to do. Time on the GPU: {time_of(whole, speed)} ({speed.source}).", soft_wrap=True
    )
    if not MEASURED[0].is_file():
        console.print(f"In the repository, where {MEASURED[0]} lies, more is known of the time.", soft_wrap=True)
    if evidence.scale.departures:
        console.print(f"Not the paper's setting: {', '.join(evidence.scale.departures)}.", soft_wrap=True)


def time_of(configs: Sequence[Config], speed: Rates) -> str:
    """What runs take together; "?" for those that nothing is known of.

    >>> time_of([], Rates({}, {}, ""))
    'none'
    """
    known = [seconds for config in configs if (seconds := speed.seconds(config)) is not None]
    unknown = len(configs) - len(known)
    text = duration(sum(known)) if known else "" if unknown else "none"
    return f"{text} + ? for {unknown} runs".removeprefix(" + ") if unknown else text
