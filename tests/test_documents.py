"""What the documents say is so: their code runs, their figures are those of the records."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def surroundings():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1]))
    return {"torch": torch, "model": model, "loss": loss}


def test_the_first_block_makes_steps_orthogonal():
    names = surroundings()
    exec(BLOCKS[0], names)
    model, optimizer = names["model"], names["optimizer"]
    names["loss"].backward()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    for parameter, weight in zip(model.parameters(), before, strict=True):
        radial = (parameter.grad * weight).sum() / (parameter.grad.norm() * weight.norm())
        assert radial.abs() < 1e-6


def test_the_other_blocks_run():
    names = surroundings()
    names["optimizer"] = torch.optim.SGD(names["model"].parameters(), lr=0.1)
    for block in BLOCKS[1:]:
        exec("import orthograd\n" + block, names)
    assert names["optimizer"].__class__.__name__ == "OrthoSGD"


def test_tables_are_those_of_the_records():
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    for name, table in tables["DOCUMENTS"].items():
        text = (ROOT / name).read_text()
        assert tables["with_table"](text, table()) == text, f"run benchmarks/tables.py: {name} is out of date"


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "results").glob("bench-*.json")), ids=lambda path: path.name)
def test_records_say_what_they_were_measured_on_and_keep_their_bounds(record):
    found = json.loads(record.read_text())
    assert {"device", "torch", "python", "threads"} <= found["environment"].keys()
    for claim in found["claims"]:
        assert claim["reach"] is None or claim["value"] <= claim["reach"], claim["what"]


def test_links_lead_somewhere():
    for document in (ROOT / "README.md", ROOT / "docs" / "method.md"):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), target


def test_importing_orthograd_imports_nothing_heavier_than_torch():
    code = "import sys, torch; before = set(sys.modules); import orthograd; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"triton", "rich", "typer", "numpy", "scipy", "lightning", "transformers"}
    assert heavy.isdisjoint(name.split(".")[0] for name in run.stdout.split())


# Who may import whom within the package. What is not named here may be imported by nobody but the command line.
MAY_IMPORT = {
    "projection": set(),
    "options": set(),
    "engine": {"projection"},
    "partition": {"engine", "options"},
    "update": {"engine", "options", "partition"},
    "attachment": {"engine", "options", "partition", "update"},
    "optimizer": {"attachment", "options", "partition"},
    "benchmark": {"optimizer"},
}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_parts_import_only_what_lies_below_them(part):
    source = ROOT / "src" / "orthograd"
    files = [source / f"{part}.py"] if (source / f"{part}.py").exists() else sorted((source / part).glob("*.py"))
    for file in files:
        dots = r"\.\." if file.parent.name == part else r"\."
        lines = re.findall(rf"^\s*from {dots}(\w+)", file.read_text(), re.M)
        lines += re.findall(r"^\s*from orthograd\.(\w+)", file.read_text(), re.M)
        assert set(lines) <= MAY_IMPORT[part], file
