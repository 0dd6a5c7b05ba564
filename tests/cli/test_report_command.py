"""`orthograd report`, and every number of the page traced back to the stored logits."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from orthograd.cli.main import app
from orthograd.cli.report import report
from orthograd.lab.comparison.formats import TITLES, metric_title
from orthograd.lab.jobs.store import Store
from tests.lab.comparison import oracle
from tests.lab.comparison.reading import drawings, heights, numbers, parsed, tables, words
from tests.lab.comparison.traced import Method, shown

MAIN = ("ece", "loss", "top1_accuracy", "max_softmax", "brier", "entropy")
SEEDS, EPOCHS = 3, 6


def reported(*arguments):
    alone = typer.Typer()
    alone.command()(report)
    return CliRunner().invoke(alone, [*map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("comparison")
    arguments = ["compare", "--seeds", SEEDS, "--epochs", EPOCHS, "--workers", 1, "--out", made]
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return made


@pytest.fixture(scope="module")
def root(folder):
    return parsed((folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def methods(folder):
    store = Store(folder / "runs")
    return Method(store, "baseline"), Method(store, "orthograd")


STARTS = {
    "clean": "Clean test samples.",
    "shifted": "Corrupted test samples:",
    "temperature-scaled": "Clean test samples after",
    "shifted-temperature-scaled": "Corrupted test samples after",
}


@pytest.mark.parametrize("images", STARTS)
def test_every_number_of_the_tables(root, methods, images):
    start = STARTS[images]
    (rows,) = [rows for caption, rows in tables(root).items() if rows[0][-1] == "verdict" and caption.startswith(start)]
    assert rows[0] == [
        *("metric", "SGD", "⊥Grad", "⊥Grad − SGD (95% interval)"),
        *("d (95% interval)", "p", "p (Holm)", "verdict"),
    ]
    assert [row[0] for row in rows[1:]] == [metric_title(metric) for metric in TITLES]
    expected = {metric: oracle.compared(*(method.values(images, metric) for method in methods)) for metric in TITLES}
    corrected = oracle.holm([each["p"] for each in expected.values()])
    for row, (metric, each), p in zip(rows[1:], expected.items(), corrected, strict=True):
        digits = oracle.DIGITS.get(metric, 4)
        for i in (0, 1):
            for value, number in zip(numbers(row[1 + i]), (each["means"][i], each["deviations"][i]), strict=True):
                assert shown(value, number, digits), (metric, row)
        assert all(shown(*pair, digits) for pair in zip(numbers(row[3]), each["difference"], strict=True)), (
            metric,
            row,
        )
        assert numbers(row[4]) == pytest.approx(each["d"], abs=0.0051, rel=1e-3), (metric, row)
        assert numbers(row[5]) == pytest.approx([each["p"]], rel=0.06), (metric, row)
        assert numbers(row[6]) == pytest.approx([p], rel=0.06), (metric, row)
        assert row[7].split()[1] == oracle.verdict(metric, each["difference"][0], p, each["equivalence"])


@pytest.mark.parametrize("images", ["clean", "shifted"])
def test_every_pair_of_seeds(root, methods, images):
    start = f"On {'corrupted' if images == 'shifted' else images} test samples"
    (rows,) = [r for caption, r in tables(root).items() if caption.startswith(start) and caption.endswith("every seed")]
    assert rows[0][0] == "seed"
    for place, metric in enumerate(MAIN):
        before, after = (method.values(images, metric) for method in methods)
        digits = oracle.DIGITS.get(metric, 4)
        for row, expected in zip(
            rows[1:], [*zip(before, after, strict=True), (np.mean(before), np.mean(after))], strict=True
        ):
            printed = [float(cell) for cell in row[1 + 2 * place : 3 + 2 * place]]
            assert all(shown(*pair, digits) for pair in zip(printed, expected, strict=True)), (metric, row)
        drawn, pixel = heights(drawings(root)[f"pairs-{images}-{metric}"], "mean")
        assert drawn == pytest.approx([np.mean(before), np.mean(after)], abs=0.02 * pixel + 1e-6)
        lower = sum(b > a for b, a in zip(before, after, strict=True))
        higher = sum(b < a for b, a in zip(before, after, strict=True))
        said = words(drawings(root)[f"pairs-{images}-{metric}"].find("desc"))
        assert f"{max(lower, higher)} of {SEEDS} seeds {'lower' if lower >= higher else 'higher'}" in said


def test_every_bin_of_the_reliability_diagrams(root, methods):
    kinds = {
        "clean": "as trained",
        "after_temperature": "after temperature scaling",
        "shifted": "all corrupted images together",
    }
    for kind, title in kinds.items():
        for place, (method, name) in enumerate(zip(methods, ("SGD", "⊥Grad"), strict=True)):
            expected = oracle.averaged(method.curves[kind])
            (rows,) = [r for caption, r in tables(root).items() if caption.startswith(f"{name}, {title};")]
            for i, row in enumerate(rows[1:]):
                assert shown(float(row[1]), 100 * expected[0, i], 2)
                printed = [math.nan if cell == "–" else float(cell) for cell in row[2:]]
                assert printed == pytest.approx(expected[1:, i], abs=6e-5, nan_ok=True), (kind, name, row)
            bars = [
                bar for bar in drawings(root)[f"reliability-{kind}-{place}"].iter("rect") if bar.get("class") == "bar"
            ]
            filled = expected[2][~np.isnan(expected[2])]
            tall = [float(bar.get("height")) / 250 for bar in bars[: len(filled)]]
            assert tall == pytest.approx(filled, abs=1e-4)


def test_every_point_over_severity(root, methods):
    shifts = sorted({name.rpartition(".")[0] for name in methods[0].sets[0]} - {""})
    panels = {
        f"Mean over all corruptions: {metric_title(metric)}": ("severity", i, metric, None)
        for i, metric in enumerate(MAIN)
    }
    for metric, title in (("ece", "ECE ↓"), ("top1_accuracy", "Accuracy, % ↑")):
        panels |= {f"{title} by corruption: {s}": (f"shift-{metric}", i, metric, s) for i, s in enumerate(shifts)}
    for caption, (key, i, metric, shift) in panels.items():
        runs = [method.over_severity(metric, shift) for method in methods]
        expected = np.array([part for method in runs for part in (method.mean(0), method.min(0), method.max(0))]).T
        for row, values in zip(tables(root)[caption][1:], expected, strict=True):
            digits = oracle.DIGITS.get(metric, 4)
            assert all(shown(float(cell), value, digits) for cell, value in zip(row[1:], values, strict=True)), row
        for method, look in zip(runs, ("baseline", "candidate"), strict=True):
            drawn, pixel = heights(drawings(root)[f"{key}-{i}"], look)
            assert drawn == pytest.approx(method.mean(0), abs=0.02 * pixel + 1e-6)


def test_every_epoch_of_training(root, methods):
    rows = tables(root)["Training loss"]
    expected = np.array(
        [part for method in methods for part in (method.losses.mean(0), method.losses.min(0), method.losses.max(0))]
    ).T
    assert len(rows) == 1 + EPOCHS
    for row, values in zip(rows[1:], expected, strict=True):
        assert [float(cell) for cell in row[1:]] == pytest.approx(values, rel=6e-4)


def test_the_verdict_says_what_the_table_says(root, methods):
    lede = words(next(part for part in root.iter("p") if part.get("class") == "lede"))
    means = [[np.mean(method.values("clean", metric)) for method in methods] for metric in ("ece", "top1_accuracy")]
    assert f"confidence of ⊥Grad is off by {100 * means[0][1]:.1f} percentage points on average, that of SGD by" in lede
    assert f"that of SGD by {100 * means[0][0]:.1f}." in lede
    assert f": {means[1][1]:.1f}% of the clean test samples against {means[1][0]:.1f}%." in lede
    assert lede.count(". ") == 1


def test_a_page_made_again_is_the_same_byte_for_byte(folder, tmp_path):
    written = (folder / "report.html").read_bytes()
    for place in (folder, folder / "runs"):
        done = reported(place, "--out", tmp_path / "again.html")
        assert (done.exit_code, done.output.strip()) == (0, str(tmp_path / "again.html"))
        assert (tmp_path / "again.html").read_bytes() == written
    assert b"orthograd compare --seeds 3 --epochs 6<" in written
    bare = tmp_path / "records"
    bare.mkdir()
    for path in (folder / "runs").glob("*/record.json"):
        shutil.copy(path, bare / f"{path.parent.name}.json")
    (bare / "comparison.json").write_text('{"verdict": "no record"}')
    assert reported(bare).output.strip() == str(bare / "report.html")
    assert (bare / "report.html").read_bytes() == written


def test_several_comparisons_get_a_page_each_named_by_what_sets_them_apart(folder, tmp_path):
    store = Store(tmp_path / "runs")
    for record in Store(folder / "runs").runs():
        content = {name: part for name, part in record.items() if name not in ("config", "hash", "files", "sha256")}
        for model in ("cnn", "my.nets:small"):
            run = store.get(record["config"] | {"model": model})
            with run.claim():
                run.finish(content)
    done = reported(tmp_path)
    names = ["report-cnn.html", "report-my.nets-small.html"]
    assert done.output.split() == [str(tmp_path / name) for name in names]
    assert "my.nets:small" in (tmp_path / names[1]).read_text()
    assert reported(tmp_path, "--model", "cnn").output.strip() == str(tmp_path / "report.html")
    refused = reported(tmp_path, "--out", tmp_path / "one.html")
    assert refused.exit_code == 2
    assert "expected a folder for 2 pages" in refused.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--candidate", "mixup"],
            "two seeds or more of baseline and of mixup with the same settings, got 3 of baseline",
        ),
        (["--model", "mlp"], "got no run with these settings"),
    ],
)
def test_what_is_not_there_is_named(folder, arguments, said):
    done = reported(folder, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize("name", ["page.pdf", "page.md", "comparison.v2", "page.html.gz"])
def test_a_page_is_html_and_says_so(folder, tmp_path, name):
    done = reported(folder, "--out", tmp_path / name)
    assert done.exit_code == 2
    assert f"expected an existing folder or a file name that ends in .html, got {tmp_path / name}" in " ".join(
        done.output.split()
    )
    assert not (tmp_path / name).exists()
    (tmp_path / name).mkdir()
    assert reported(folder, "--out", tmp_path / name).output.strip() == str(tmp_path / name / "report.html")


def test_folders_without_records_and_broken_records_are_named(folder, tmp_path):
    for place, said in ((tmp_path / "none", "got nothing"), (tmp_path, "expected records of finished runs, got none")):
        done = reported(place)
        assert done.exit_code == 2
        assert f"{place}: " in done.output
        assert said in done.output
    path = next((folder / "runs").glob("*/record.json"))
    record = json.loads(path.read_text())
    edited = tmp_path / "edited.json"
    for content in ("{", json.dumps(record | {"losses": [1.0]}), json.dumps({"sha256": ""})):
        edited.write_text(content)
        done = reported(tmp_path)
        assert done.exit_code == 2
        assert f"{edited}: " in done.output
