"""The options that say who does the runs of a command, and how many at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Optional, TypeAlias

import typer

WHERE = "Where and how"

# typer reads annotations at run time, so on Python 3.10 they must be Optional[…].
Workers: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--workers",
        "--max-concurrent",
        rich_help_panel=WHERE,
        min=1,
        help="Runs at once; if not given, one a core, or as many as suit the GPU or the cluster.",
    ),
]
Executor: TypeAlias = Annotated[
    str,
    typer.Option(rich_help_panel=WHERE, help="local: this machine; or ray: a cluster, needs the extra ray."),
]
Address: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(rich_help_panel=WHERE, help="Of the Ray cluster; RAY_ADDRESS or this machine if not given."),
]
GPUsPerRun: TypeAlias = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(rich_help_panel=WHERE, min=0, help="Share of a GPU for each run under Ray, such as 0.25."),
]


def refuse_ignored(is_given: Mapping[str, bool], where: str) -> None:
    """Name options that would be ignored there: whoever gives them believes that they count.

    >>> refuse_ignored({"--momentum": True, "--seed": False}, "with the optimizer adamw")
    Traceback (most recent call last):
    ValueError: expected no --momentum with the optimizer adamw: it would be ignored
    """
    if options := [option for option, given in is_given.items() if given]:
        raise ValueError(f"expected no {' and no '.join(options)} {where}: it would be ignored")
