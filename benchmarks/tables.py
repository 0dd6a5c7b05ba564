"""Write the tables of the documents from the records in docs/results, which `orthograd bench --record` made."""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORDS = {"NVIDIA H200": "bench-h200.json", "2 CPU cores": "bench-cpu.json"}
COSINE = "|cos(Δ, w)|, "
BEGIN, END = "<!-- measured by `orthograd bench`, written by benchmarks/tables.py -->\n", "<!-- end -->\n"


def claims(name: str) -> list[dict]:
    return json.loads((ROOT / "docs/results" / name).read_text())["claims"]


def costs() -> str:
    """What the README shows: every claim on every machine."""
    lines = ["| what | where | ⊥Grad here | to reach | others in the same run |", "|---|---|---|---|---|"]
    for where, name in RECORDS.items():
        for claim in claims(name):
            if claim["what"].startswith(COSINE):
                continue
            bound = "" if claim["reach"] is None else f"≤ {claim['reach']:g}"
            others = ", ".join(f"{value:.3g} ({peer})" for peer, value in claim["others"].items())
            what = claim["what"].replace("|", "\\|")
            lines.append(f"| {what} | {where} | {claim['value']:.3g} | {bound} | {others} |")
    return "\n".join(lines) + "\n"


def cosines() -> str:
    """What docs/method.md shows: how radial updates are."""
    found = [claim for claim in claims("bench-cpu.json") if claim["what"].startswith(COSINE)]
    names = list(found[0]["others"])
    lines = ["| base | " + " | ".join([*names, 'project="update"']) + " |", "|---" * (len(names) + 2) + "|"]
    for claim in found:
        values = [*claim["others"].values(), claim["value"]]
        base = claim["what"].removeprefix(COSINE).removesuffix(', project="update"')
        lines.append(f"| {base} | " + " | ".join(f"{value:.2g}" for value in values) + " |")
    return "\n".join(lines) + "\n"


DOCUMENTS = {"README.md": costs, "docs/method.md": cosines}


def with_table(text: str, table: str) -> str:
    head, rest = text.split(BEGIN)
    return head + BEGIN + table + END + rest.split(END)[1]


if __name__ == "__main__":
    for name, table in DOCUMENTS.items():
        document = ROOT / name
        document.write_text(with_table(document.read_text(), table()))
