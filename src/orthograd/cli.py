"""The command line: parse, one library call, print. Help comes at once: torch is imported by what needs it."""

from __future__ import annotations

import os
import sys

from . import __version__
from .gpu_queues import QUEUES

try:
    import typer
except ImportError:
    sys.exit("The command line needs rich and typer: pip install 'orthograd[lab]'")

from .commands.bench import bench
from .commands.compare import compare
from .commands.data import data
from .commands.evaluate import evaluate
from .commands.report import report
from .commands.reproduce import reproduce
from .commands.theory import theory

COMMANDS = (compare, report, evaluate, reproduce, theory, data, bench)

app = typer.Typer(
    help="⊥Grad: gradients orthogonal to the weights they change.", no_args_is_help=True, add_completion=False
)
for command in COMMANDS:
    app.command()(command)


@app.callback()
def root() -> None:
    """Gradients orthogonal to the weights they change: the same accuracy, less overconfidence."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Entry point of the command ``orthograd``."""
    os.environ.setdefault(*QUEUES)  # before anything asks for a GPU
    app()
