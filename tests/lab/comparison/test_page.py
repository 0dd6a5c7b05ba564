"""The page as a document: its order, its words, and that nothing in it is taken on trust."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import pytest

from orthograd.calibration import CONVENTIONS
from orthograd.lab.comparison.page.document import (
    accuracy_sentence,
    calibration_sentence,
    headline,
    page,
)
from orthograd.lab.comparison.page.runs import FailedRun
from orthograd.lab.comparison.pair import MethodPair
from orthograd.lab.page.document import drawing_style
from tests.lab.comparison.records import runs

NAMES = ("SGD", "⊥Grad")


def paired(records, methods=("baseline", "orthograd")):
    return MethodPair.of(records, baseline=methods[0], candidate=methods[1])


def made(records, names=NAMES, command="orthograd compare"):
    return page(paired(records), names=names, command=command)


def parsed(text):
    """The page is XML too, so that what is not closed is noticed."""
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def words(element):
    return " ".join("".join(element.itertext()).split())


def test_sections_come_in_the_order_that_was_promised():
    root = parsed(made(runs()))
    assert [words(heading) for heading in root.iter("h1")] == [words(root.find("head/title"))]
    assert [words(heading) for heading in root.iter("h2")] == [
        "Where ⊥Grad is better and where it is worse",
        "All metrics",
        "Seed by seed",
        "Reliability diagrams",
        "Corrupted images",
        "Training loss",
        "Settings and versions",
        "Data",
    ]
    captions = [words(table.find("caption")) for table in root.iter("table") if table.get("class") == "comparison"]
    assert [re.split("[:.,]", caption)[0] for caption in captions] == [
        "Clean test samples",
        "Corrupted test samples",
        "Clean test samples after temperature scaling",
    ]


def test_every_identity_is_unique_and_every_reference_finds_one():
    text = made(runs())
    identities = re.findall(r' id="([^"]*)"', text)
    assert len(identities) == len(set(identities))
    named = {name for names in re.findall(r'aria-labelledby="([^"]*)"', text) for name in names.split()}
    assert named <= set(identities)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(identities)


def test_every_figure_is_described_and_has_its_numbers():
    root = parsed(made(runs()))
    figures = list(root.iter("figure"))
    assert len(figures) == 8
    for figure in figures:
        assert words(figure.find("figcaption"))
        assert figure.find("details//table") is not None
        for drawing in figure.findall("div//svg"):
            assert drawing.get("role") == "img"
            assert words(drawing.find("title"))
            assert re.search(r"\d", words(drawing.find("desc")))


def test_nothing_comes_from_outside_and_nothing_runs():
    text = made(runs())
    assert "<script" not in text
    assert "default-src 'none'" in parsed(text).find("head/meta[2]").get("content")
    assert all(address.startswith("data:") for address in re.findall(r'(?:href|src)="([^"]*)"', text))
    assert not re.search(r"https?:|@import", text)


def test_failed_runs_come_first_with_their_error_and_a_link():
    failed = [FailedRun("orthograd", 7, "ValueError: <b> & so on", "runs/abc/failure.txt")]
    text = page(paired(runs()), names=NAMES, command="orthograd compare", failed=failed)
    section = parsed(text).find("body/main/section")
    assert [words(part) for part in section.findall(".//tbody/tr/*")] == [
        "⊥Grad, seed 7",
        "ValueError: <b> & so on",
        "failure.txt",
    ]
    assert section.find(".//a").get("href") == "runs/abc/failure.txt"
    assert "1 run failed. Without seed 7." in words(section)
    assert "· 1 run failed" in words(parsed(text).find("body/main/header/p"))
    assert "failed" not in made(runs())


def test_names_and_settings_are_escaped():
    records = runs(model='a<b>&"c"')
    text = made(
        records, names=("x<i>", "y</title><script>alert(1)</script>"), command="orthograd compare --model '<&>'"
    )
    root = parsed(text)
    assert root.find(".//script") is None
    assert root.find(".//i") is None
    assert 'a<b>&"c"' in words(root)
    assert words(root.find(".//pre")) == "orthograd compare --model '<&>'"


def test_the_same_records_give_the_same_bytes_whatever_their_order():
    assert made(runs()) == made(list(reversed(runs())))


def test_records_without_curves_give_a_page_that_says_so():
    old = [{name: part for name, part in run.items() if name not in ("reliability", "evaluated")} for run in runs()]
    root = parsed(made(old))
    (missing,) = [words(part) for part in root.iter("p") if part.get("class") == "missing"]
    assert missing.startswith("This section is missing: the records of these runs were written by an earlier version")
    assert len(list(root.iter("figure"))) == 6


def test_runs_without_shifts_or_held_out_images_give_a_page():
    bare = [run | {"after_temperature": None} for run in runs(shifts=())]
    for run in bare:
        run["reliability"] = run["reliability"] | {"after_temperature": None}
    root = parsed(made(bare))
    assert len([table for table in root.iter("table") if table.get("class") == "comparison"]) == 1
    assert "evaluated on clean samples only" in words(root)


def test_undefined_and_infinite_metrics_are_named():
    records = runs()
    records[0]["metrics"]["clean"] |= {"loss": "inf", "confidence_accuracy_correlation": None}
    text = words(parsed(made(records)))
    assert "Not shown, because undefined or infinite in some run: clean: loss, confidence–accuracy." in text


def test_runs_that_disagree_in_versions_or_hardware_are_told():
    records = runs()
    records[0]["versions"] = {"torch": "2.5", "python": "3.11"}
    text = words(parsed(made(records)))
    assert "The runs differ in torch" in text
    assert "2.5 (1 runs); 2.4 (5 runs)" in text
    assert "The runs differ" not in made(runs())


@pytest.mark.parametrize(
    ("ece", "correct", "said"),
    [
        ((0.1, 0.05), (90, 90.01), "⊥Grad vs. SGD: better calibrated, equally accurate"),
        ((0.1, 0.05), (90, 85), "⊥Grad vs. SGD: better calibrated, less accurate"),
        ((0.05, 0.1), (90, 95), "⊥Grad vs. SGD: worse calibrated, more accurate"),
        ((0.05, 0.1), (90, 85), "⊥Grad vs. SGD: worse calibrated, less accurate"),
    ],
)
def test_the_headline_says_what_is_worse_as_plainly_as_what_is_better(ece, correct, said):
    records = runs(seeds=range(6))
    for run in records:
        method, wobble = run["config"]["method"] == "orthograd", 1e-3 * (run["config"]["seed"] % 3)
        run["metrics"]["clean"] |= {
            "ece": ece[method] + wobble * (method + 1),
            "top1_accuracy": correct[method] + wobble * (method + 1),
        }
    table = paired(records).tables["clean"]
    assert headline(table, NAMES) == said
    first, second = calibration_sentence(table, NAMES), accuracy_sentence(table, NAMES)
    assert ("is better calibrated" in first) == ("better calibrated" in said)
    assert ("less accurate" in second) == ("less accurate" in said)
    assert second.startswith("But") == (said.endswith("better calibrated, less accurate") or "more" in said)
    assert first.count(". ") == second.count(". ") == 0


def test_few_seeds_that_differ_leave_it_inconclusive():
    table = paired(runs()).tables["clean"]
    assert "calibration inconclusive" in headline(table, NAMES)
    assert calibration_sentence(table, NAMES).startswith("With 3 seeds, no difference in calibration was detected")


def test_files_to_download_hold_every_number_in_full():
    records = runs()
    root = parsed(made(records))
    files = {link.get("download"): unquote(link.get("href").partition(",")[2]) for link in root.iter("a")}
    lines = [line.split(",") for line in files["runs.csv"].splitlines()]
    assert lines[0] == ["method", "seed", "images", *CONVENTIONS]
    assert len(lines) == 1 + 6 * 6
    assert lines[1][:3] == ["baseline", "0", "clean"]
    assert [float(cell) for cell in lines[1][3:]] == list(records[0]["metrics"]["clean"].values())
    assert files["training.csv"].splitlines()[1] == "baseline,0,1,2.0"
    assert list(files)[2:] == ["comparison-clean.csv", "comparison-shifted.csv", "comparison-temperature-scaled.csv"]


def test_a_drawing_has_whole_rules_of_the_style_and_none_of_the_page():
    style = drawing_style()
    assert style.count("{") == style.count("}")
    assert "svg text {" in style
    assert "min-width" not in style
