"""Text without its code: the prose of a Markdown page, its sentences, and the texts in a Python file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

WORD = re.compile(r"[\w⊥−%]+(?:['’.,-][\w]+)*")
SENTENCE_END = re.compile(r"(?<=[.!?])\*{0,2}\s+")


def without_code(text: str) -> str:
    """Markdown without code, comments and the targets of links; every line keeps its number."""
    blocks = (
        r"\A---\n.*?^---$|^[ \t]*(?P<fence>```+|~~~+)[^\n]*\n.*?^[ \t]*(?P=fence)[ \t]*$|<!--.*?-->|\{math\}`[^`]*`"
    )
    text = re.sub(blocks, lambda match: "\n" * match[0].count("\n"), text, flags=re.S | re.M)
    text = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", lambda match: "x" + "\n" * match[0].count("\n"), text, flags=re.S)
    text = re.sub(r"\[([^]]*)\](?:\([^)]*\)|\[[^]]*\])", r"\1", text)
    return re.sub(r"https?://\S+", "", text)


def sentences(text: str) -> list[str]:
    """The sentences of all paragraphs and list items; headings, pictures, tables and formulas are left out."""
    left_out = ("|", "#", "!", "    ", ":::", "---")
    lines = [line for line in without_code(text).splitlines() if not line.startswith(left_out)]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", "\n".join(lines))
    parts = [part for each in paragraphs for part in SENTENCE_END.split(" ".join(each.split()))]
    return [part for part in parts if WORD.search(part)]


def mean_words(text: str) -> float:
    """The average number of words in a sentence."""
    counts = [len(WORD.findall(sentence)) for sentence in sentences(text)]
    return sum(counts) / len(counts)


def strings(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is a docstring, for each text of Python source that a person may read.

    Values in f-strings become 0. Identifiers, keys and other texts without a space are left out.
    """
    tree = ast.parse(source)
    docstrings, inside = set(), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                docstrings.add(id(part.value))
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node)} - {id(node)}
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text, id(node) in docstrings
