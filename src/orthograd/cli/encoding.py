"""Printing where the encoding of the output lacks a sign, as cp1252 lacks ⊥: ASCII stands in for it."""

from __future__ import annotations

import codecs
import io
import unicodedata
from typing import TextIO

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
