"""The command line: parse, one library call, print. Help comes at once: torch is imported by what needs it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from .. import __version__
from ..imports import advised
from ..lab.gpu import QUEUES
from .encoding import make_printable

try:
    import rich  # noqa: F401 typer does without, the commands do not
    import typer
except ImportError as error:
    print(f"orthograd: {advised(error)}", file=sys.stderr)
    sys.exit(2)

from .bench import bench
from .compare import compare
from .data import data
from .evaluate import evaluate
from .report import report
from .reproduce import reproduce
from .theory import theory

COMMANDS = (compare, report, evaluate, reproduce, theory, data, bench)

app = typer.Typer(
    help="⊥Grad: gradients orthogonal to the weights they change.", no_args_is_help=True, add_completion=False
)
for command in COMMANDS:
    app.command()(command)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Gradients orthogonal to the weights they change: the same accuracy, less overconfidence."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Entry point of the command ``orthograd``."""
    os.environ.setdefault(*QUEUES)  # before anything asks for a GPU
    make_printable(sys.stdout, sys.stderr)
    try:
        app()
    except (ImportError, OSError) as error:
        print(f"orthograd: {advised(error) if isinstance(error, ImportError) else error}", file=sys.stderr)
        sys.exit(2)
