"""Where the documents are, and tables as they have them."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"|{'|'.join(line if line == '---' else f' {line} ' for line in cells)}|\n" for cells in lines)
