"""docs/reproduction.md and its figures, made from the committed records: ``python -m orthograd.paper.document``.

With ``--check`` nothing is written, and whatever differs from what the records give is named.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..lab.files import write_text
from .blocks import Picture, as_markdown
from .contents import contents
from .evidence import Evidence
from .settings import Scale

NAME, FIGURES, RECORDS = "reproduction.md", "figures/reproduction", "results/reproduction"


def expected_files(docs: Path) -> dict[Path, str]:
    """Every file that the records in a folder of documents make, with its text."""
    blocks = contents(Evidence.of(Scale(), folder=docs / RECORDS), records=RECORDS, with_advice=True)
    path = docs / NAME
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    pictures = {docs / FIGURES / block.name: block.svg for block in blocks if isinstance(block, Picture)}
    return {path: as_markdown(blocks, figures=FIGURES, before=before), **pictures}


def differing(docs: Path) -> list[Path]:
    """The files that are missing, differ, or are left over from records that are gone."""
    expected = expected_files(docs)
    wrong = [path for path, text in expected.items() if not path.exists() or path.read_bytes() != text.encode()]
    return [*wrong, *(path for path in sorted((docs / FIGURES).glob("*.svg")) if path not in expected)]


def write_documents(docs: Path) -> list[Path]:
    """Write the document and its figures; remove figures that nothing makes any more."""
    expected = expected_files(docs)
    for path, text in expected.items():
        write_text(path, text)
    for path in differing(docs):
        path.unlink()
    return list(expected)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 where something differs, 2 where records cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m orthograd.paper.document", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something differs")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="the folder of documents (default: docs)")
    given = parser.parse_args(arguments)
    try:
        if not given.check:
            print(*write_documents(given.docs), sep="\n")
            return 0
        wrong = differing(given.docs)
    except (OSError, ValueError) as error:
        print(f"orthograd.paper.document: {error}", file=sys.stderr)
        return 2
    for path in wrong:
        print(f"{path}: not what the records give; run python -m orthograd.paper.document", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
