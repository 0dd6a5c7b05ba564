"""The command ``orthograd bench``: what ⊥Grad, or calibration, costs on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..imports import require

if TYPE_CHECKING:
    from rich.table import Table

    from ..lab.bench.claim import Claim


def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or auto: the GPU where there is one.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; the bounds are for 2.")] = 2,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Measure metrics and temperature fits, not the optimizer; on the CPU.")
    ] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Measure how fast networks are trained on a GPU: some ten minutes.")
    ] = False,
    judging: Annotated[
        bool,
        typer.Option(
            "--judging",
            help="Measure how long making CIFAR-10-C takes, and on a GPU how long ResNet-18 takes to answer for it.",
        ),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only the smaller network, fewer rounds.")] = False,
    record: Annotated[Optional[Path], typer.Option(help="Write the figures to this file as JSON.")] = None,  # noqa: UP045 typer reads it on 3.10
) -> None:
    """Measure what ⊥Grad, or calibration, costs and how exact it is here, beside what others do, in one run.

    Figures are ratios or errors, so machines compare; of --training and --judging also seconds, with bounds for one
    NVIDIA H200, or two CPU cores. Exits with 1 if a bound is not kept.
    """
    if calibration + training + judging > 1:
        raise typer.BadParameter("expected one of --calibration, --training and --judging, got more")
    if quick and (training or judging):
        raise typer.BadParameter("expected --quick without --training and --judging, which have no quicker way")
    if calibration and device not in ("auto", "cpu"):
        raise typer.BadParameter(f"--calibration: expected the CPU, got {device}")
    if record is not None and (record.is_dir() or not record.parent.is_dir()):
        got = "a folder" if record.is_dir() else "none of that name"
        raise typer.BadParameter(f"{record}: expected a file in a folder that exists, got {got}")
    require("numpy")
    import torch
    from rich.console import Console

    from ..lab.bench import suite
    from .options import device_named

    chosen = torch.device("cpu") if calibration else device_named(device)
    if training and chosen.type != "cuda":
        raise typer.BadParameter(f"--training: expected a GPU, got {chosen.type}")
    if judging:
        _have_frost()
    torch.set_num_threads(threads)
    console, facts = Console(markup=False, emoji=False), suite.environment(chosen)
    claims: list[Claim] = []
    with console.status("measuring …") as status:
        if training:
            measured = suite.measure_training()
        elif judging:
            measured = suite.measure_judging(chosen)
        elif calibration:
            measured = suite.measure_calibration(quick=quick)
        else:
            measured = suite.measure(chosen, quick=quick)
        for claim in measured:
            claims.append(claim)
            status.update(f"measured {claim.what}; measuring on …")
            if not console.is_terminal:  # a log shows how far it is, too
                print(f"{claim.what}: {claim.value:.3g}", flush=True)
            if record is not None:  # after each, so that a benchmark that is stopped leaves what it has found
                _write(record, claims, facts)
    console.print(_table(claims, facts))
    if not all(claim.holds for claim in claims):
        raise typer.Exit(1)


def _have_frost() -> None:
    """Ready before anything is measured; what is missing is told in a line."""
    from ..lab.data.corruption import frost_textures

    try:
        frost_textures()
    except FileNotFoundError as error:
        raise typer.BadParameter(f"--judging: {error}") from error


def _write(record: Path, claims: list[Claim], facts: dict[str, str]) -> None:
    rows = [claim.as_row() for claim in claims]
    record.write_text(
        json.dumps({"environment": facts, "claims": rows}, indent=1, ensure_ascii=False), encoding="utf-8"
    )


def _table(claims: list[Claim], facts: dict[str, str]) -> Table:
    from rich.table import Table

    where = ", ".join(f"{name} {value}" if name != "device" else value for name, value in facts.items())
    table = Table("what", "here", "bound", "others in the same run", title=f"Measured on {where}", title_justify="left")
    for claim in claims:
        bound = "" if claim.reach is None else f"≤ {claim.reach:g}"
        others = ", ".join(f"{name} {value:.3g}" for name, value in claim.others.items())
        table.add_row(claim.what, f"{claim.value:.3g}" + ("" if claim.holds else "  too much"), bound, others)
    return table
