"""The page of `orthograd evaluate`: its order, its words, and that its numbers are those of the library."""

from __future__ import annotations

import csv
import io
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from orthograd import calibration
from orthograd.calibration.files.evaluation import Settings, column_of, evaluated
from orthograd.calibration.files.reading import PredictionsFile
from orthograd.lab.evaluation.document import evaluation_page
from orthograd.lab.evaluation.pair_document import pair_page
from orthograd.lab.evaluation.verdict import short_verdict
from tests.lab.comparison.test_page import parsed, words
from tests.lab.evaluation.samples import QUICK, choices, digits, masks, seeds

COMMAND = "orthograd evaluate plain.npz sharp.npz"
SECTIONS = [
    "All metrics",
    "Reliability diagrams",
    "Risk and coverage",
    "Before and after each calibrator",
    "Files and settings",
    "Data",
]


@cache
def page_of(kind):
    results = kind()
    return results, parsed(evaluation_page(results, COMMAND))


def downloaded(root, name):
    (link,) = [each for each in root.iter("a") if each.get("download") == name]
    return list(csv.DictReader(io.StringIO(unquote(link.get("href").partition(",")[2]))))


def headings(root, level):
    return [words(each) for each in root.iter(level)]


@pytest.mark.parametrize("kind", [digits, choices, masks])
def test_sections_come_in_one_order_and_nothing_is_fetched(kind):
    _, root = page_of(kind)
    assert headings(root, "h2") == SECTIONS
    assert headings(root, "h1") == [words(root.find("head/title"))]
    for name in ("src", "href"):
        links = [each.get(name) for each in root.iter() if each.get(name)]
        assert all(link.startswith("data:") for link in links)
    assert COMMAND in words(root)


def test_the_verdict_says_which_way_the_confidence_is_off():
    results, root = page_of(digits)
    plain, sharp = results.columns
    assert short_verdict(plain).startswith("underconfident by")
    assert short_verdict(sharp).startswith("over")
    assert headings(root, "h1")[0] == f"plain.npz: {short_verdict(plain)}; sharp.npz: {short_verdict(sharp)}"
    gap = plain.metrics.top1_accuracy - 100 * plain.metrics.max_softmax
    assert f"underconfident by {gap:.1f} points" in headings(root, "h1")[0]
    assert f"ECE is {plain.metrics.ece:.4f}" in words(root)
    assert "sharp.npz − plain.npz: " in words(root.find("body/main/header"))


def test_calibrated_samples_have_no_verdict_against_them():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    column = column_of("a", PredictionsFile(Path("a"), logits, labels, False, ""), Settings(resamples=0))
    assert short_verdict(column) == "no miscalibration detected"
    both = torch.cat([3 * logits[:2000], logits[2000:] / 3])
    column = column_of("a", PredictionsFile(Path("a"), both, labels, False, ""), Settings(resamples=0))
    assert short_verdict(column) == "over- and underconfident"


def test_metrics_and_calibrators_are_those_of_the_library():
    results, root = page_of(digits)
    file = results.columns[0].file
    rows = {(row["file"], row["metric"]): row for row in downloaded(root, "metrics.csv")}
    expected = calibration.evaluate(file.scores, file.labels)
    low, high = calibration.intervals(file.scores, file.labels, resamples=50)["ece"]
    assert float(rows["plain.npz", "smooth_ece"]["value"]) == expected.smooth_ece
    assert [float(rows["plain.npz", "ece"][name]) for name in ("value", "low", "high")] == [expected.ece, low, high]
    after = {(row["file"], row["metric"]): row["value"] for row in downloaded(root, "calibrators.csv")}
    for name, kind in (("vector scaling", calibration.VectorScaling), ("platt scaling", calibration.PlattScaling)):
        refined = calibration.decomposition(file.scores, file.labels, calibrator=kind)
        assert float(after[f"plain.npz, {name}", "loss"]) == pytest.approx(refined.loss_refinement, rel=1e-9)
        assert float(after[f"plain.npz, {name}", "brier"]) == pytest.approx(refined.brier_refinement, rel=1e-9)
    assert "cross-fitted: in 5 folds" in words(root)


def test_curves_are_those_of_the_library():
    results, root = page_of(digits)
    column = results.columns[0]
    bins = [row for row in downloaded(root, "reliability.csv") if row["file"] == "plain.npz"]
    assert [float(row["share"]) for row in bins] == column.curve.share.tolist()
    probabilities = column.file.scores.softmax(1)
    confidence, chosen = probabilities.max(1)
    coverage, risk = calibration.risk_coverage(confidence, chosen == column.file.labels)
    points = [row for row in downloaded(root, "risk-coverage.csv") if row["file"] == "plain.npz"]
    assert float(points[0]["coverage"]) == pytest.approx(12 / len(risk))  # one percent of 1197
    for point in points[:: len(points) // 5]:
        place = round(float(point["coverage"]) * len(risk)) - 1
        assert float(point["error_rate"]) == pytest.approx(float(risk[place]), abs=1e-9)
    assert float(points[-1]["coverage"]) == float(coverage[-1]) == 1.0


def test_held_out_samples_are_fitted_on_and_named():
    results = digits()
    file = results.columns[0].file
    half = len(file.labels) // 2
    parts = [
        PredictionsFile(Path(f"{name}.npz"), file.scores[part], file.labels[part], False, "")
        for name, part in (("held-out", slice(half)), ("test", slice(half, None)))
    ]
    root = parsed(evaluation_page(evaluated(parts[1:], parts[:1], QUICK), COMMAND))
    after = {(row["file"], row["metric"]): row["value"] for row in downloaded(root, "calibrators.csv")}
    scaling = calibration.IsotonicCalibration().fit(parts[0].scores, parts[0].labels)
    expected = calibration.evaluate(scaling(parts[1].scores), parts[1].labels)
    assert float(after["test.npz, isotonic calibration", "loss"]) == pytest.approx(expected.loss)
    assert "Each calibrator was fitted on held-out.npz." in words(root)


def test_what_makes_results_doubtful_stands_above_the_verdict():
    file = seeds().columns["as given"][0][0].file
    assert "so that result is too good" in words(parsed(evaluation_page(evaluated([file], [file], QUICK), COMMAND)))
    soft = PredictionsFile(Path("soft.npz"), file.scores.softmax(1), file.labels, False, "")
    with pytest.warns(calibration.InputWarning):
        page = evaluation_page(evaluated([soft], [], QUICK), COMMAND)
    assert "pass --probabilities" in words(parsed(page))


def test_a_single_map_says_why_it_has_no_calibrators():
    file = masks().columns[0].file
    single = PredictionsFile(Path("one.npz"), file.scores[:1], file.labels[:1], False, "", file.form)
    text = words(parsed(evaluation_page(evaluated([single], [], QUICK), COMMAND)))
    assert "expected at least 2 samples to cross-fit a calibrator, got 1: pass --fit" in text
    assert "No calibrator could be fitted." in text


def test_maps_have_no_intervals_and_say_so():
    _, root = page_of(masks)
    assert "No intervals for masks.npz" in words(root)
    assert "In brackets" not in words(root)
    assert "every fold of maps or sequences" in words(root)


def test_the_page_of_pairs_has_every_seed():
    pairs = seeds()
    root = parsed(pair_page(pairs, COMMAND))
    assert headings(root, "h2")[1:] == [
        "All metrics",
        "Seed by seed",
        "Reliability diagrams",
        "Risk and coverage",
        "Files and settings",
        "Data",
    ]
    rows = downloaded(root, "seeds.csv")
    assert [(row["method"], row["seed"]) for row in rows[:6]] == [
        (name, str(seed)) for name in "ab" for seed in range(3)
    ]
    file = pairs.columns["as given"][1][2].file
    assert file.path == Path("b-2")
    assert float(rows[5]["ece"]) == calibration.evaluate(file.scores, file.labels).ece
    assert len(rows) == 12
    assert headings(root, "h1")[0].startswith("b vs. a: ")
