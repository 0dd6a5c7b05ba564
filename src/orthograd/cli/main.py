"""The entry point: registers the commands. Commands import torch themselves, so that --help is fast."""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata
from typing import Annotated, TextIO

from .. import __version__
from ..imports import advised
from ..lab.gpu import QUEUES

try:
    import rich  # noqa: F401 the commands need it, typer does not
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
    help="⊥Grad for any PyTorch optimizer, and the tools to measure whether your classifier's confidence got better.",
    no_args_is_help=True,
    add_completion=False,
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
    """Options before a command."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


# ASCII for characters that the output's encoding lacks, as cp1252 lacks ⊥.
SIGNS = {
    **dict.fromkeys("−–—‐", "-"),
    **dict.fromkeys("“”″", '"'),
    **dict.fromkeys("‘’", "'"),
    **{
        "⊥": "_|_",
        "‖": "||",
        "⟨": "<",
        "⟩": ">",
        "√": "sqrt ",
        "∇": "grad ",
        "×": "x",
        "·": "*",
        "•": "*",
        "°": " degrees",
    },
    **{"≤": "<=", "≥": ">=", "≈": "~", "±": "+/-", "→": "->", "←": "<-", "↑": "^", "↓": "v", "…": "..."},
}


def make_printable(*streams: TextIO | None) -> None:
    """Make these streams replace characters that they cannot encode, so that printing never fails."""
    codecs.register_error("orthograd", _encodable)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="orthograd")


def _encodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(stand_in, error.object[error.start : error.end])), error.end


def stand_in(sign: str) -> str:
    """ASCII that reads like the character, or a question mark.

    >>> [stand_in(sign) for sign in "⊥≤θΣ²₁é漢"]
    ['_|_', '<=', 'theta', 'Sigma', '^2', '_1', 'e', '?']
    """
    name = unicodedata.name(sign, "")
    if sign in SIGNS or name.startswith("GREEK "):
        letter = name.rpartition(" ")[2]
        return SIGNS.get(sign) or (letter.title() if sign.isupper() else letter.lower())
    raised = {"<super>": "^", "<sub>": "_"}.get(unicodedata.decomposition(sign).partition(" ")[0], "")
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return raised + plain if plain else "?"


def main() -> None:
    """Entry point of the command ``orthograd``."""
    os.environ.setdefault(*QUEUES)  # before CUDA starts
    make_printable(sys.stdout, sys.stderr)
    try:
        app()
    except (ImportError, OSError) as error:
        print(f"orthograd: {advised(error) if isinstance(error, ImportError) else error}", file=sys.stderr)
        sys.exit(2)
