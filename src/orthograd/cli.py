"""The command line: parse, one library call, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Optional

import torch

from . import __version__

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ImportError:
    sys.exit("The command line needs rich and typer: pip install 'orthograd[lab]'")

from .benchmark import Claim, environment, measure, measure_calibration
from .commands.compare import compare
from .commands.devices import device_named
from .commands.evaluate import evaluate

app = typer.Typer(
    help="⊥Grad: gradients orthogonal to the weights they change.", no_args_is_help=True, add_completion=False
)
app.command()(compare)
app.command()(evaluate)


@app.callback()
def root() -> None:
    """Gradients orthogonal to the weights they change: the same accuracy, less overconfidence."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or auto: the GPU where there is one.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; the bounds are for 2.")] = 2,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Measure metrics and temperature fits, not the optimizer; on the CPU.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only the smaller network, fewer rounds.")] = False,
    record: Annotated[Optional[Path], typer.Option(help="Write the figures to this file as JSON.")] = None,  # noqa: UP045 typer reads it on 3.10
) -> None:
    """Measure what ⊥Grad, or calibration, costs and how exact it is here, beside what others do, in one run.

    Every figure is a ratio or an error, so machines compare. Exits with 1 if a bound is not kept.
    """
    chosen = torch.device("cpu") if calibration else device_named(device)
    torch.set_num_threads(threads)
    console = Console()
    claims = []
    with console.status("measuring …") as status:
        for claim in measure_calibration(quick=quick) if calibration else measure(chosen, quick=quick):
            claims.append(claim)
            status.update(f"measured {claim.what}; measuring on …")
    console.print(_table(claims, chosen))
    if record is not None:
        rows = [claim.as_row() for claim in claims]
        record.write_text(
            json.dumps({"environment": environment(chosen), "claims": rows}, indent=1, ensure_ascii=False)
        )
    if not all(claim.holds for claim in claims):
        raise typer.Exit(1)


def _table(claims: list[Claim], device: torch.device) -> Table:
    facts = ", ".join(f"{name} {value}" if name != "device" else value for name, value in environment(device).items())
    table = Table("what", "here", "bound", "others in the same run", title=f"Measured on {facts}", title_justify="left")
    for claim in claims:
        bound = "" if claim.reach is None else f"≤ {claim.reach:g}"
        others = ", ".join(f"{name} {value:.3g}" for name, value in claim.others.items())
        table.add_row(claim.what, f"{claim.value:.3g}" + ("" if claim.holds else "  too much"), bound, others)
    return table


def main() -> None:
    """Entry point of the command ``orthograd``."""
    app()
