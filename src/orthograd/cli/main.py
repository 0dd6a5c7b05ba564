"""The command line: parse, one library call, print. Help comes at once: torch is imported by what needs it."""

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
    """Gradients orthogonal to the weights they change: the same accuracy, less overconfidence."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


# Where the encoding of the output lacks a sign, as cp1252 lacks ⊥, ASCII stands in for it.
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
    """Let these streams print every text: a table that cannot be encoded must not end hours of work."""
    codecs.register_error("orthograd", _encodable)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="orthograd")


def _encodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(stand_in, error.object[error.start : error.end])), error.end


def stand_in(sign: str) -> str:
    """ASCII that reads like the sign, or a question mark.

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
    os.environ.setdefault(*QUEUES)  # before anything asks for a GPU
    make_printable(sys.stdout, sys.stderr)
    try:
        app()
    except (ImportError, OSError) as error:
        print(f"orthograd: {advised(error) if isinstance(error, ImportError) else error}", file=sys.stderr)
        sys.exit(2)
