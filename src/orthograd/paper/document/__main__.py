"""Writes docs/reproduction.md, docs/reproduction/ and their figures from the committed records.

``python -m orthograd.paper.document``. With ``--check`` it writes nothing and names every file that differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .contents import differing, write_documents


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if something differs, 2 if records cannot be read."""
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
        print(f"{path}: differs from its records; run python -m orthograd.paper.document", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
