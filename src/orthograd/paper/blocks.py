"""What a document consists of, whether it becomes Markdown or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is that of the document."""

    level: int
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph; `code`, **bold** and [links](target) as Markdown has them."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of short paragraphs."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A drawing that is a file of its own, and its content in words."""

    name: str
    svg: str
    words: str


@dataclass(frozen=True)
class ByHand:
    """A place for text that people write: what stands there is kept when the document is made anew."""

    name: str
    empty: str


Block = Heading | Words | Items | Table | Picture | ByHand


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose rows all have as many cells as the header."""
    found = tuple(tuple(row) for row in rows)
    for row in found:
        if len(row) != len(header):
            raise ValueError(f"expected rows of {len(header)} cells, got {row}")
    return Table(tuple(header), found)


def as_markdown(blocks: Iterable[Block], *, figures: str, before: str = "") -> str:
    """The document; pictures lie in the folder ``figures``, and what stands by hand in ``before`` stays."""
    return "\n".join("".join(f"{line}\n" for line in _lines(block, figures, before)) for block in blocks)


def written_by_hand(text: str, name: str) -> str | None:
    """What stands in the place of that name in a document.

    >>> written_by_hand("<!-- when: by hand -->\\nOften.\\n<!-- end of when -->\\n", "when")
    'Often.'
    """
    begin, end = _marks(name)
    if begin not in text or end not in text:
        return None
    return text.split(begin, 1)[1].split(end, 1)[0].strip("\n")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: by hand -->", f"<!-- end of {name} -->"


def _lines(block: Block, figures: str, before: str) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {block.text}"
    elif isinstance(block, Words):
        yield block.text
    elif isinstance(block, Items):
        yield from (f"- {text}" for text in block.texts)
    elif isinstance(block, Table):
        for cells in (block.header, ("---",) * len(block.header), *block.rows):
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    elif isinstance(block, Picture):
        yield f"![{block.words}]({PurePosixPath(figures) / block.name})"
    else:
        begin, end = _marks(block.name)
        yield from (begin, written_by_hand(before, block.name) or block.empty, end)
