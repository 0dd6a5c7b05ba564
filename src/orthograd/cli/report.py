"""The command ``orthograd report``: the report of a comparison from the records of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..imports import require


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of a comparison, of its runs, or of JSON records.")],
    baseline: Annotated[str, typer.Option(help="Method to compare with.")] = "baseline",
    candidate: Annotated[Optional[str], typer.Option(help="Method to compare; default: every other method.")] = None,  # noqa: UP045 typer reads it on 3.10
    model: Annotated[Optional[str], typer.Option(help="Only runs of this model.")] = None,  # noqa: UP045
    dataset: Annotated[Optional[str], typer.Option(help="Only runs on this data set.")] = None,  # noqa: UP045
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File or folder for the report; default: beside the runs."),
    ] = None,
) -> None:
    """Write the report of a comparison from the records of its runs.

    Trains nothing and reads no logits. If the folder holds several
    comparisons, each gets its own page, named by the settings that differ.

    Examples:

    orthograd report comparison
    orthograd report comparison --model cnn_batchnorm --out batchnorm.html
    """
    require("numpy", "safetensors", "scipy")
    from ..lab.comparison.output import write_pages  # imports scipy
    from ..lab.comparison.records import files_gone

    try:
        written = write_pages(
            runs, baseline=baseline, candidate=candidate, settings={"model": model, "dataset": dataset}, out=out
        )
    except (ValueError, OSError) as error:
        typer.echo(f"orthograd report: {error}", err=True)
        raise typer.Exit(2) from None
    for path in written:
        typer.echo(str(path))
    for path in files_gone(runs):
        typer.echo(f"orthograd report: {path} is missing: the report was made from the records only", err=True)
