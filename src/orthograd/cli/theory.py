"""The command ``orthograd theory``: check the paper's theorems numerically."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..imports import require

if TYPE_CHECKING:
    from rich.table import Table

NAMES = "convergence, wandering, path_length, renormalization, boundary"


def theory(
    out: Annotated[Path, typer.Option(help="Folder for the figures and theory.json.")] = Path("theory"),
    only: Annotated[Optional[str], typer.Option(help=f"One of {NAMES}; default: all.")] = None,  # noqa: UP045 typer reads it on 3.10
    document: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            exists=True, dir_okay=False, help="Also write the tables into this Markdown file, between its marks."
        ),
    ] = None,
) -> None:
    """Check the paper's theorems on small problems, in about a minute on a CPU.

    Prints each statement with the measured value and its bound, and draws a
    figure for each theorem. Exits with 1 if a statement does not hold.

    Examples:

    orthograd theory
    orthograd theory --only wandering --out somewhere
    """
    require("matplotlib", "PIL", "numpy", "scipy")
    import torch
    from rich.console import Console

    from ..paper.theory.suite import as_record, demonstrated

    torch.set_num_threads(1)  # problems are small, so more threads would be slower
    console, tried = Console(), []
    try:
        _check_places(only, out, document)
        for demonstration in demonstrated(only):
            tried.append(demonstration)
            record = as_record([demonstration])
            console.print(_table(record["demonstrations"][0]))
        written = _written(as_record(tried), out, document)
    except (ValueError, OSError) as error:
        typer.echo(f"orthograd theory: {error}", err=True)
        raise typer.Exit(2) from None
    for path in written:
        typer.echo(str(path))
    if not all(statement.holds for demonstration in tried for statement in demonstration.statements):
        raise typer.Exit(1)


def _check_places(only: str | None, folder: Path, document: Path | None) -> None:
    """Raise ValueError where the output cannot be written, before any work."""
    from ..paper.theory.suite import DEMONSTRATIONS, with_tables

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder, got a file")
    if document is not None:
        empty = [{"name": name, "statements": []} for name in DEMONSTRATIONS if only in (None, name)]
        with_tables(document.read_text(encoding="utf-8"), {"demonstrations": empty})


def _table(demonstration: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(
        "statement", "measured", "value", "bound", "holds", title=demonstration["title"], title_justify="left"
    )
    before = ""
    for row in demonstration["statements"]:
        says = "″" if row["says"] == before else row["says"]
        holds = "yes" if row["holds"] else "[red]no[/red]"
        table.add_row(says, row["measured"], f"{row['value']:.3g}", f"{row['relation']} {row['bound']:.3g}", holds)
        before = row["says"]
    return table


def _written(record: dict[str, Any], folder: Path, document: Path | None) -> list[Path]:
    """Write the record, the figures and the tables of the document; their paths."""
    from ..paper.theory.suite import with_tables, write_record

    paths = write_record(record, folder)
    if document is not None:
        document.write_text(with_tables(document.read_text(encoding="utf-8"), record), encoding="utf-8")
        paths.append(document)
    return paths
