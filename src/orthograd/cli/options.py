"""Options that commands share: executor, concurrent runs and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Optional, TypeAlias

import typer

if TYPE_CHECKING:
    import torch

WHERE = "Where to run"

# typer reads annotations at run time, so on Python 3.10 they must be Optional[…].
Workers: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--workers",
        "--max-concurrent",
        rich_help_panel=WHERE,
        min=1,
        help="Concurrent runs; default: one per core, or as many as fit the GPU or the cluster.",
    ),
]
Executor: TypeAlias = Annotated[
    str,
    typer.Option(rich_help_panel=WHERE, help="local for this machine, ray for a cluster (extra: ray)."),
]
Address: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(rich_help_panel=WHERE, help="Address of the Ray cluster; default: RAY_ADDRESS, or this machine."),
]
GPUsPerRun: TypeAlias = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(rich_help_panel=WHERE, min=0, help="GPUs per run with Ray, such as 0.25."),
]


def refuse_ignored(is_given: Mapping[str, bool], where: str) -> None:
    """Raise ValueError that names options which would be ignored.

    >>> refuse_ignored({"--momentum": True, "--seed": False}, "with the optimizer adamw")
    Traceback (most recent call last):
    ValueError: expected no --momentum with the optimizer adamw: it would be ignored
    """
    if options := [option for option, given in is_given.items() if given]:
        raise ValueError(f"expected no {' and no '.join(options)} {where}: it would be ignored")


def device_named(name: str) -> torch.device:
    """The device of the option --device."""
    import torch

    known = {"auto": "cuda" if torch.cuda.is_available() else "cpu", "cpu": "cpu", "cuda": "cuda"}
    if name not in known or (name == "cuda" and not torch.cuda.is_available()):
        raise typer.BadParameter(f"expected cpu, auto, or cuda where there is a GPU, got {name}")
    return torch.device(known[name])
