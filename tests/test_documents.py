"""What the documents say is so: their code runs, their figures are those of the records."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from orthograd.lab.bench import document as bench
from orthograd.lab.bench.claim import read_claims
from orthograd.paper.studies import method_tables
from orthograd.paper.studies.documents import DOCUMENTS, expected_files

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"


def surroundings():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1]))
    return {"torch": torch, "model": model, "loss": loss}


def test_the_blocks_of_the_page_on_whether_to_use_it_run(capsys):
    names = {"torch": torch, "images": torch.randn(5, 4), "labels": torch.tensor([0, 1, 2, 0, 1])} | surroundings()
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/should-i-use-it.md").read_text(), re.S):
        exec(block, names)
    assert "of the gradient's energy" in capsys.readouterr().out


def test_the_blocks_of_the_page_on_norms_run(capsys):
    import orthograd

    names = {"orthograd": orthograd, "images": torch.randn(5, 4), "labels": torch.tensor([0, 1, 2, 0, 1])}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/norms.md").read_text(), re.S):
        exec(block, names | surroundings())
    assert "Underconfidence is to be expected" in capsys.readouterr().out


def test_the_blocks_of_the_page_on_calibration_run(tmp_path):
    from orthograd import calibration

    predictions = [(torch.randn(50, 10), torch.randint(10, (50,))) for _ in range(3)]
    other = calibration.Evaluation()
    other.update(*predictions[0])
    names = {"torch": torch, "calibration": calibration, "batches": predictions[1:], "other": other}
    names |= {"model": torch.nn.Identity(), "stack": torch.randn(2, 3, 50, 10), "held_out_logits": predictions[0][0]}
    names["held_out_labels"] = predictions[0][1]
    for name in ("sgd_ece", "orthograd_ece", "sgd_accuracy", "orthograd_accuracy"):
        names[name] = torch.rand(5).tolist()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    try:
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "calibration.md").read_text(), re.S):
            exec(block, names)
    finally:
        torch.distributed.destroy_process_group()
    assert names["evaluation"].samples == 150
    assert names["comparison"].metric == "ece"


def test_the_blocks_of_the_page_on_the_method_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"torch": torch, "images": torch.randn(5, 4), "labels": torch.tensor([0, 1, 2, 0, 1])} | surroundings()
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "method.md").read_text(), re.S):
        exec(block.replace("...  #", "loss.backward(); optimizer.step()  #"), names)
    assert names["recorder"].steps == [0]
    assert (tmp_path / "radial.png").exists()


def test_norms_grow_and_decay_by_the_rule_of_the_page_on_the_method():
    import orthograd

    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1, weight_decay=0.3)
    orthograd.attach(optimizer)
    before, gradient = weight.detach().clone(), torch.randn_like(weight)
    weight.grad = gradient.clone()
    optimizer.step()
    expected = (1 - 0.1 * 0.3) ** 2 * before.square().sum() + 0.1**2 * gradient.square().sum()
    assert float(weight.detach().square().sum()) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.slow
def test_tables_and_the_figure_are_those_of_the_records():
    for path, text in expected_files(ROOT).items():
        assert path.read_bytes() == text.encode(), f"run make tables: {path} is out of date"


def test_every_mark_of_a_table_has_a_maker():
    for name, makers in DOCUMENTS.items():
        marks = re.findall(r"<!-- (\w+): written by make tables -->", (ROOT / name).read_text())
        assert sorted(marks) == sorted(maker.__name__ for maker in makers)


def test_the_table_of_what_to_expect_has_a_column_for_each_setting_with_both_methods(tmp_path):
    source, folder = RESULTS / "reproduction", tmp_path / "reproduction"
    folder.mkdir()
    for setting, methods in {"resnet18": ("baseline", "orthograd"), "resnet50": ("baseline",)}.items():
        for method in methods:
            shutil.copy(source / f"resnet18-{method}.json", folder / f"{setting}-{method}.json")
    assert "ResNet-50" not in method_tables.expected(tmp_path)
    shutil.copy(source / "resnet18-orthograd.json", folder / "resnet50-orthograd.json")
    header, _, *rows = method_tables.expected(tmp_path).splitlines()
    assert [cell.split(",")[0].strip() for cell in header.split("|")[2:4]] == ["ResNet-18", "ResNet-50"]
    assert all(row.count("→") == 2 for row in rows)


SGD, LARGE, COMPILED = "SGD, momentum, weight decay", "bf16, {}, 64 images of 224 × 224", ", torch.compile"
MISSED = {
    "step, ResNet-18, SGD, momentum, weight decay",
    "fused step, ResNet-18, AdamW, in a CUDA graph",
    f"training step, ViT-S, {LARGE.format(SGD)}",
    f"training step, ResNet-50, {LARGE.format(SGD)}{COMPILED}",
    *(f"training step, {network}, {LARGE.format('AdamW')}{COMPILED}" for network in ("ResNet-50", "ViT-S")),
    f"training step, ViT-S, {LARGE.format(SGD)}{COMPILED}",
}
"""Bounds that a GPU missed, as the page on performance says."""
KEPT = sorted({*RESULTS.glob("bench-*.json"), RESULTS / "distributed-step.json", RESULTS / "ray-overhead.json"})


@pytest.mark.parametrize("record", KEPT, ids=lambda path: path.name)
def test_records_say_what_they_were_measured_on(record):
    assert {"device", "torch", "python", "threads"} <= json.loads(record.read_text())["environment"].keys()


def test_records_keep_their_bounds_but_for_those_that_the_page_names():
    missed = [str(claim.key) for record in KEPT for claim in read_claims(record) if not claim.holds]
    assert sorted(missed) == sorted(MISSED)
    tables = [make(RESULTS) for make in (bench.step_costs, bench.loop_costs, bench.fused_costs)]
    assert sum(table.count(" missed)") for table in tables) == len(MISSED)


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "results").glob("calibration-*.json")), ids=lambda p: p.name)
def test_records_of_calibration_name_the_bounds_they_miss(record):
    found = json.loads(record.read_text())
    assert {"device", "torch", "python", "threads"} <= found["environment"].keys()
    missed = [claim for claim in found["claims"] if not (claim["target"] is None or claim["value"] <= claim["target"])]
    assert missed == [claim for claim in found["claims"] if not claim["holds"]]
    document = (ROOT / "docs" / "calibration.md").read_text()
    assert document.count("**missed**") >= len(missed)


def test_the_metrics_of_the_example_are_those_of_its_predictions():
    from orthograd import calibration
    from orthograd.calibration.files.reading import read_predictions

    folder = ROOT / "docs" / "results" / "digits"
    for column in json.loads((folder / "evaluation.json").read_text())["files"]:
        file = read_predictions(folder / Path(column["path"]).name)
        logits = file.scores
        if column["temperature"] is not None:
            held_out = read_predictions(folder / Path(column["temperature"]["fitted_on"]).name)
            logits = calibration.TemperatureScaling().fit(held_out.scores, held_out.labels)(logits)
        for name, value in calibration.evaluate(logits, file.labels).as_row().items():
            assert column["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_links_lead_somewhere():
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notes").glob("*.md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", document.read_text()):
            path = document.parent / target if target else document
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), f"{document.name}: {target}#{anchor}"


def anchors(document):
    """Headings as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_importing_orthograd_imports_nothing_heavier_than_torch():
    code = "import sys, torch; before = set(sys.modules); import orthograd; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "triton",
        "rich",
        "typer",
        "numpy",
        "scipy",
        "lightning",
        "transformers",
        "matplotlib",
        "sklearn",
        "jax",
        "ray",
    }
    assert heavy.isdisjoint(name.split(".")[0] for name in run.stdout.split())
