"""The command ``orthograd reproduce``: run the paper's experiments and compare every number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional, TypeAlias

import typer

from ..imports import require
from ..paper.plan import GROUPS, Scale
from .options import WHERE, Address, Executor, GPUsPerRun, Workers, refuse_ignored

# typer reads annotations at run time, so on Python 3.10 they must be Optional[…].
Whole: TypeAlias = Optional[int]  # noqa: UP045
Number: TypeAlias = Optional[float]  # noqa: UP045
Text: TypeAlias = Optional[str]  # noqa: UP045
Folder: TypeAlias = Optional[Path]  # noqa: UP045
Rows: TypeAlias = Optional[list[str]]  # noqa: UP045
GROKKING = "With grokking"
SMALLER = "Smaller runs (not the paper's setting)"


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help=f"Experiments: {', '.join(GROUPS['paper'])}; beyond the paper: {', '.join(GROUPS['beyond'])}; "
            "figures: reliability, overtrained; or a group: paper, beyond, all; alone: grokking.",
        ),
    ],
    seeds: Annotated[
        Whole, typer.Option(rich_help_panel=SMALLER, min=2, max=10_000, help="Number of seeds per method.")
    ] = None,
    epochs: Annotated[Whole, typer.Option(rich_help_panel=SMALLER, min=1, help="Training epochs.")] = None,
    model: Annotated[Text, typer.Option(rich_help_panel=SMALLER, help="Another network, as in compare.")] = None,
    dataset: Annotated[Text, typer.Option(rich_help_panel=SMALLER, help="Another data set, as in compare.")] = None,
    labels_per_class: Annotated[
        Whole, typer.Option(rich_help_panel=SMALLER, min=0, help="Training images per class; 0 for all.")
    ] = None,
    shifts: Annotated[
        Text, typer.Option(rich_help_panel=SMALLER, help="Corrupted test images: none, simple or cifar10c.")
    ] = None,
    device: Annotated[str, typer.Option(rich_help_panel=WHERE, help="cuda for concurrent runs on one GPU, or cpu.")] = (
        "cuda"
    ),
    precision: Annotated[
        Text,
        typer.Option(
            rich_help_panel=WHERE,
            help="GPU precision: float32, tf32 or bf16; default: tf32 for table 1, bf16 for most others.",
        ),
    ] = None,
    workers: Workers = None,
    executor: Executor = "local",
    address: Address = None,
    gpus_per_run: GPUsPerRun = None,
    minutes: Annotated[
        Number,
        typer.Option(
            rich_help_panel=WHERE, min=0, help="Stop training after this many minutes; the next call resumes."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(rich_help_panel=WHERE, help="Folder for the report, the tables and the runs.")
    ] = Path("reproduction"),
    export: Annotated[
        Folder,
        typer.Option(
            rich_help_panel=WHERE,
            help="Folder of exported records: runs in it are not repeated, new ones are added.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", rich_help_panel=GROKKING, help="Three rows of five seeds: minutes on two cores.")
    ] = False,
    only: Annotated[
        Rows, typer.Option(metavar="ROW", rich_help_panel=GROKKING, help="Only this row; may be repeated.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Train nothing; write all files from existing records.")
    ] = (False),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs to do and the GPU time; train nothing.")] = (
        False
    ),
) -> None:
    """Run the paper's experiments and compare every number of the paper with ours.

    Experiments share runs: table1, temperature and corruption need the same
    ones, and a finished run is not repeated. Interrupt with Ctrl-C at any time;
    the same command resumes.

    grokking is where ⊥Grad comes from: Prieto et al. (2025). It runs alone and
    needs no data. A row is one setting whose seeds train side by side; the
    names of the rows: orthograd reproduce grokking --dry-run.

    Examples:

    orthograd reproduce all --dry-run
    orthograd reproduce table1 precision --minutes 30
    orthograd reproduce paper --export docs/results/reproduction
    orthograd reproduce table1 --seeds 2 --epochs 2 --device cpu --shifts none
    orthograd reproduce paper --executor ray --address auto --gpus-per-run 0.25
    orthograd reproduce grokking --quick
    orthograd reproduce grokking --device cuda --minutes 25 --export docs/results/grokking
    """
    require("numpy", "safetensors", "scipy")
    if executor == "ray":
        require("ray", extra="ray")
    from .execution import (
        Failures,
        Place,  # imports torch, which --help does not need
    )
    from .reproduction import Request, reproduced

    try:
        if "grokking" in names:
            others: dict[str, Any] = {
                "--epochs": epochs,
                "--model": model,
                "--dataset": dataset,
                "--labels-per-class": labels_per_class,
            }
            others |= {"--shifts": shifts, "--precision": precision, "--workers": workers, "--address": address}
            others |= {"--gpus-per-run": gpus_per_run, "--executor": None if executor == "local" else executor}
            folder = out / ("grokking-quick" if quick else "grokking")
            asked = tuple(only or ()), seeds, quick, device, folder, export, minutes, rebuild, dry_run
            raise typer.Exit(_grokking(names, others, asked))
        refuse_ignored({"--quick": quick, "--only": bool(only)}, "without grokking")
        if rebuild:
            training = {"--workers": workers is not None, "--minutes": minutes is not None}
            training |= {"--executor": executor != "local", "--dry-run": dry_run}
            refuse_ignored(training, "with --rebuild, which trains nothing")
        place = Place(executor, workers, address=address, gpus_per_run=gpus_per_run)
        scale = Scale(
            seeds=seeds,
            epochs=epochs,
            model=model,
            dataset=dataset,
            labels_per_class=labels_per_class,
            shifts=shifts,
            device=None if device == "cuda" else device,
            precision=precision,
        )
        code = reproduced(Request(tuple(names), scale, out, export, place, minutes, rebuild), dry_run=dry_run)
    except Failures as error:
        typer.echo(f"orthograd reproduce: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def _grokking(names: list[str], others: dict[str, Any], asked: tuple[Any, ...]) -> int:
    """Run the experiments on grokking, which have their own options; the exit code."""
    from .grokking import GrokkingRequest, grokking

    if len(names) > 1:
        raise ValueError(f"expected grokking alone, got {', '.join(names)}")
    refuse_ignored({name: value is not None for name, value in others.items()}, "with grokking")
    return grokking(GrokkingRequest(*asked))
