"""The command ``orthograd report``: the page of a comparison, made again from the records of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..imports import require


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of a comparison, of its runs, or of records as JSON files.")],
    baseline: Annotated[str, typer.Option(help="The method that others are compared with.")] = "baseline",
    candidate: Annotated[Optional[str], typer.Option(help="The method to compare; all there are if not given.")] = None,  # noqa: UP045 typer reads it on 3.10
    model: Annotated[Optional[str], typer.Option(help="Only runs of this model.")] = None,  # noqa: UP045
    dataset: Annotated[Optional[str], typer.Option(help="Only runs on this data set.")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option(help="File or folder; beside the runs if not given.")] = None,  # noqa: UP045
) -> None:
    """Make the page of a comparison again, from the records of its runs alone.

    Nothing is trained and no logits are read. Where the folder holds several
    comparisons, each gets a page of its own, named by what sets it apart.

    orthograd report comparison
    orthograd report comparison --model cnn_batchnorm --out batchnorm.html
    """
    require("numpy", "safetensors", "scipy")
    from ..lab.comparison.output import write_pages  # with scipy, which no other command waits for
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
        typer.echo(f"orthograd report: {path} is gone: the page is made from the records alone", err=True)
