"""The command ``orthograd bench``: measure the cost of ⊥Grad, calibration or training on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..imports import require

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from ..lab.bench.claim import Claim


def bench(
    only: Annotated[
        Optional[list[str]],  # noqa: UP045 typer reads it on 3.10
        typer.Option(
            help="Benchmarks to run, from --list, separated by commas; default: optimizer.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU if there is one.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; the targets are for 2.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller network, fewer repetitions.")] = False,
    record: Annotated[Optional[Path], typer.Option(help="Write the results to this JSON file.")] = None,  # noqa: UP045
) -> None:
    """Measure the cost and the accuracy of ⊥Grad on this machine.

    Results are ratios to other code in the same run, or errors, so that
    machines can be compared. Training, corruption and evaluation also have
    seconds, with targets for one NVIDIA H200 or two CPU cores. Exits with 1 if
    a target is missed.

    Examples:

    orthograd bench
    orthograd bench --only step,memory
    orthograd bench --only calibration --quick
    orthograd bench --only training --record training.json
    """
    require("numpy")
    import torch
    from rich.console import Console

    from ..lab.bench import suite
    from ..lab.bench.claim import environment, write_record

    console = Console(markup=False, emoji=False)
    if list_names:
        console.print(_names())
        return
    try:
        names = suite.chosen(name.strip() for option in only or ["optimizer"] for name in option.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"--only: {error}") from error
    _check_record(record)
    chosen = _checked_device(names, device, quick=quick)
    torch.set_num_threads(threads)
    facts = environment(chosen)
    claims: list[Claim] = []
    with console.status("measuring …") as status:
        for claim in suite.measured(names, chosen, quick=quick):
            claims.append(claim)
            status.update(f"measured {claim.key}; measuring …")
            if not console.is_terminal:  # progress for a log
                print(f"{claim.key}: {claim.value:.3g}", flush=True)
            if record is not None:  # after each, so that an interrupted benchmark keeps its results
                write_record(record, claims, facts)
    console.print(_table(claims, facts))
    if not all(claim.holds for claim in claims):
        raise typer.Exit(1)


def _check_record(record: Path | None) -> None:
    if record is not None and (record.is_dir() or not record.parent.is_dir()):
        got = "a folder" if record.is_dir() else "none of that name"
        raise typer.BadParameter(f"{record}: expected a file in a folder that exists, got {got}")


def _checked_device(names: list[str], device: str, *, quick: bool) -> torch.device:
    """The device for these benchmarks; BadParameter if one cannot run here."""
    from ..lab.bench.suite import MEASUREMENTS
    from ..lab.data.corruption import frost_textures
    from .options import device_named

    wanted = {name: MEASUREMENTS[name] for name in names}
    is_for_cpu = any(each.device == "cpu" for each in wanted.values())
    chosen = device_named("cpu" if is_for_cpu and device == "auto" else device)
    for name, measurement in wanted.items():
        if measurement.device not in ("any", chosen.type):
            expected = "a GPU" if measurement.device == "cuda" else "the CPU"
            raise typer.BadParameter(f"{name}: expected {expected}, got {chosen.type}")
        if quick and not measurement.has_quick_way:
            raise typer.BadParameter(f"{name}: expected no --quick, as it has no quick version")
        if measurement.needs_frost:
            try:
                frost_textures()
            except FileNotFoundError as error:
                raise typer.BadParameter(f"{name}: {error}") from error
    return chosen


def _names() -> Table:
    from rich.table import Table

    from ..lab.bench.suite import GROUPS, MEASUREMENTS

    table = Table("name", "claim")
    for name, parts in GROUPS.items():
        table.add_row(name, f"all of: {', '.join(parts)}")
    for name, measurement in MEASUREMENTS.items():
        table.add_row(name, measurement.says)
    return table


def _table(claims: list[Claim], facts: dict[str, str]) -> Table:
    from rich.table import Table

    where = ", ".join(f"{name} {value}" if name != "device" else value for name, value in facts.items())
    table = Table(
        "benchmark", "here", "target", "others in the same run", title=f"Measured on {where}", title_justify="left"
    )
    for claim in claims:
        bound = "" if claim.target is None else f"≤ {claim.target:g}"
        others = [f"{name} {value:.3g}" for name, value in claim.others.items()]
        if claim.ends is not None:
            others.insert(0, f"from {claim.ends[0]:.3g} to {claim.ends[1]:.3g}")
        value = f"{claim.value:.3g}" + ("" if claim.holds else "  too much")
        table.add_row(str(claim.key), value, bound, ", ".join(others))
    return table
