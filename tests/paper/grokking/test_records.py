"""Records of the grokking experiments, and the tables, sentences, verdicts and figures made from them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from orthograd.lab.bench.claim import read_claims
from orthograd.paper.grokking.claims import PUBLISHED, Published
from orthograd.paper.grokking.figures import (
    GROUPS,
    MECHANISM,
    METHODS,
    accuracy_figure,
    mechanism_figure,
    with_rate,
)
from orthograd.paper.grokking.measurement import MEASURES
from orthograd.paper.grokking.page import results_table, summary, verdicts_table, write_page
from orthograd.paper.grokking.predictions import PREDICTIONS, median_step, predicted
from orthograd.paper.grokking.records import Record, missing, read_record, read_records, write_record
from orthograd.paper.grokking.rows import ROWS
from orthograd.paper.grokking.training import Training

DOCS = Path(__file__).parents[3] / "docs"


def record_of(name, accuracies, **others):
    """A record with the test accuracies of each seed, and 0.5 for the rest."""
    n, points = len(accuracies), len(accuracies[0])
    curves = {measure: [[0.5] * points for _ in range(n)] for measure in MEASURES}
    curves |= {"test_accuracy": [list(curve) for curve in accuracies]} | others
    steps = [ROWS[name].steps * point // (points - 1) for point in range(points)]
    return Record(ROWS[name], list(range(n)), steps, curves, {"seconds": 1.0, "device": "none", "versions": {}})


FAILS = record_of("adamw", [[0.0, 0.0, 0.01], [0.0, 0.0, 0.0], [0.0, 0.0, 0.02]])
LEARNS = record_of("ortho_adamw", [[0.0, 0.96, 1.0], [0.0, 0.9, 1.0], [0.0, 1.0, 0.9]])
BOTH = {"adamw": FAILS, "ortho_adamw": LEARNS}
AT_CHANCE = {"adamw": [0.001, 0.002, 0.003], "ortho_adamw": [0.003, 0.004, 0.0051]}


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = write_record(LEARNS, tmp_path / "new")
    assert read_record(path) == LEARNS
    assert json.loads(path.read_text())["row"]["beta2"] == 0.999


def test_seeds_generalize_at_the_first_step_above_the_threshold():
    assert LEARNS.steps_to_generalize() == [150, 300, 150]
    assert FAILS.steps_to_generalize() == [None, None, None]
    assert LEARNS.at("test_accuracy", 299) == [0.96, 0.9, 1.0]
    assert LEARNS.at("test_accuracy") == [1.0, 1.0, 0.9]


def test_the_record_with_more_seeds_counts_and_others_are_missing(tmp_path):
    write_record(FAILS, tmp_path / "a")
    write_record(record_of("adamw", [[0.0, 0.0]]), tmp_path / "b")
    records = read_records([tmp_path / "b", tmp_path / "a", tmp_path / "none"])
    assert records == {"adamw": FAILS}
    rows = [ROWS["adamw"], ROWS["ortho_adamw"]]
    assert missing(rows, [0, 1, 2], records) == [ROWS["ortho_adamw"]]
    assert missing(rows, [0, 1, 2, 3], records) == rows


def test_a_record_of_other_settings_does_not_count(tmp_path):
    path = write_record(FAILS, tmp_path)
    path.write_text(path.read_text().replace('"beta2": 0.99', '"beta2": 0.5'))
    assert read_records([tmp_path]) == {}
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"adamw\.json: expected a record of orthograd reproduce grokking"):
        read_records([tmp_path])


def test_the_table_counts_seeds():
    lines = results_table(BOTH).splitlines()
    assert "| AdamW | 0.01 | – | 3 | 300 | 0 of 3 | – | 50% / 1% |" in lines[2]
    assert "| ⊥AdamW | 0.01 | 1 | 3 | 300 | 3 of 3, 2 at the end | 150 (150–300) | 50% / 97% |" in lines[3]


def test_seeds_without_a_gradient_are_not_in_the_mean_of_its_radial_share():
    gone = record_of("adamw", [[0.0, 0.1]] * 3, radial=[[0.5, None], [0.5, 0.2], [0.5, 0.4]])
    assert "| 30% (2 seeds) |" in results_table({"adamw": gone})


def test_the_sentences_name_every_method():
    said = summary(BOTH)
    assert said.startswith(
        "Test accuracy reaches 95% with AdamW in 0 of 3 seeds, ⊥AdamW in 3 of 3 seeds (median step 150)."
    )
    assert "at step 50 the norm of logits, the median over seeds, is 0.5 (AdamW), 0.5 (⊥AdamW); " in said
    assert said.endswith("accuracy on training pairs is 50% (AdamW), 50% (⊥AdamW).")
    assert summary({"adamw": FAILS}).endswith("Accuracy on training pairs at the end: 50% (AdamW).")


def test_verdicts_follow_the_rule_of_the_reproduction():
    claim = PUBLISHED[0]
    assert claim.rows == ["adamw", "ortho_adamw"]
    assert claim.verdict(BOTH) == "reproduced"
    assert claim.verdict({"adamw": LEARNS, "ortho_adamw": FAILS}) == "not reproduced"
    at_chance = {name: record_of(name, [[0.0, value] for value in ends]) for name, ends in AT_CHANCE.items()}
    assert claim.estimate(at_chance).is_significant
    assert claim.verdict(at_chance) == "not reproduced", "a figure cannot show a difference below a point"
    steps = Published("steps", "1", "ortho_adamw", measure="steps", size=200)
    assert steps.estimate(BOTH).value == 200
    assert steps.verdict(BOTH) == "compatible"
    assert Published("steps", "", "adamw", measure="steps").values(FAILS) == [300, 300, 300]
    lines = verdicts_table(BOTH).splitlines()
    assert len(lines) == 2 + 2
    assert lines[2].endswith("| reproduced |")


def test_steps_that_a_baseline_lacks_make_a_difference_a_bound():
    claim = Published("fewer steps", "1", "ortho_adamw", "adamw", measure="steps", says="lower")
    assert claim.is_bound(BOTH)
    assert not claim.is_bound({"adamw": LEARNS, "ortho_adamw": LEARNS})
    assert not claim.is_bound({"adamw": FAILS, "ortho_adamw": FAILS}), "then it bounds nothing"
    fails = record_of("transformer_adamw", [[0.0, 0.0, 0.0]] * 3)
    sooner = record_of("transformer_ortho_adamw", [[0.0, 1.0, 1.0]] * 3)
    assert "| ≤ −2,500 (" in verdicts_table({"transformer_adamw": fails, "transformer_ortho_adamw": sooner})


def test_an_order_of_tiny_differences_is_right_by_its_letter_alone():
    names = ("float16_40", "float32_40", "float64_40")
    for ends, outcome in (((0.001, 0.002, 0.003), "right by its letter alone: "), ((0.1, 0.2, 0.3), "right")):
        records = {name: record_of(name, [[0.0, end]] * 2) for name, end in zip(names, ends, strict=True)}
        ((_, _, told),) = predicted(records)
        assert told.startswith(outcome)
        assert (told == "right") == (ends[0] == 0.1)


def test_seeds_that_both_rows_have_are_paired():
    fewer = record_of("adamw", [[0.0, 0.5], [0.0, 0.7]])
    assert PUBLISHED[0].estimate({"adamw": fewer, "ortho_adamw": LEARNS}).n == 2


def test_predictions_are_checked_against_the_records():
    lines = {line[0].split(".")[0]: line for line in predicted(BOTH)}
    assert list(lines) == ["1", "2", "4", "5"]
    assert lines["1"][1:] == ["AdamW: 0 of 3 seeds", "right"]
    assert lines["2"][1:] == ["⊥AdamW: 3 of 3 seeds, median step 150", "right"]
    assert lines["4"][2] == lines["5"][2] == "wrong"
    assert [median_step(record) for record in BOTH.values()] == [math.inf, 150]


def test_every_prediction_can_be_checked():
    """With every row there is an outcome, and it depends on the rows."""
    outcomes = set()
    for accuracies in ([[0.0, 0.1, 0.2]] * 2, [[0.0, 1.0, 1.0]] * 2):
        records = {name: record_of(name, accuracies) for name in ROWS}
        lines = list(predicted(records))
        assert len(lines) == len(PREDICTIONS)
        outcomes.add(tuple(line[2] for line in lines))
    assert len(outcomes) == 2


def test_every_row_is_in_a_figure_and_every_claim_has_its_rows():
    drawn = {name for names in GROUPS.values() for name in names}
    assert drawn == set(ROWS)
    assert {name for names in MECHANISM for name in names} == set(METHODS) <= set(ROWS)
    assert {name for claim in PUBLISHED for name in claim.rows} <= set(ROWS)


def test_figures_show_medians_and_bands():
    figure = mechanism_figure(BOTH)
    assert len(figure.subfigs) == 1
    assert [line.get_label() for line in figure.axes[0].lines] == ["AdamW", "⊥AdamW"]
    assert list(figure.axes[0].lines[1].get_ydata()) == [0.0, 0.96, 1.0]
    assert len(figure.axes[0].collections) == 2
    titles = [axes.get_title() for axes in accuracy_figure(BOTH).axes if axes.get_title()]
    assert titles == ["figure 1: rate 0.01"]


def test_a_method_has_one_look_in_both_halves_and_rows_of_a_half_differ():
    assert METHODS["adamw"] == METHODS["adamw_long"]
    assert METHODS["adamw_float64"] == METHODS["float64_40"]
    for names in MECHANISM:
        assert len({str(METHODS[name]) for name in names}) == len(names)
    above, below = ({str(METHODS[name]) for name in names} for names in MECHANISM)
    assert above & below == {str(METHODS[name]) for name in ("adamw", "adamw_float64")}


def test_the_rate_is_named_where_rows_of_a_picture_have_several():
    short, long = (record_of(name, [[0.0, 0.0]]) for name in ("adamw_long", "float32_40"))
    assert with_rate(short, [short]) == "AdamW"
    assert with_rate(short, [short, long]) == "AdamW, rate 0.01"
    assert with_rate(long, [short, long]).endswith("\nrate 0.0005")


def test_values_that_are_not_finite_are_left_out_of_a_figure():
    gone = record_of("adamw", [[0.0, 0.1, 0.2]] * 2, radial=[[0.5, None, None], [0.5, 0.4, None]])
    assert list(mechanism_figure({"adamw": gone}).axes[1].lines[0].get_ydata()) == [0.5, 0.4]


def test_the_page_has_the_tables_and_the_figures(tmp_path):
    page, *figures = write_page(BOTH, tmp_path / "new")
    text = page.read_text()
    assert "## Verdicts" in text
    for figure in figures:
        assert f"]({figure.name})" in text
        assert figure.stat().st_size > 10_000


def test_the_page_says_what_twenty_seeds_in_three_times_the_time_of_one_would_need():
    training = Training(ROWS["ortho_adamw"], range(20), torch.device("cpu"))
    with FlopCounterMode(display=False) as counter:
        training.advance(1)
    products = counter.get_total_flops()
    (claim,) = read_claims(DOCS / "results" / "grokking-seeds-h200.json")
    rate = products / (claim.target * claim.others["ms a step of 1"] / 1e3)
    page = " ".join((DOCS / "grokking.md").read_text().split())
    assert f"are {products / 1e9:.0f} GFLOP a step" in page
    assert f"would have to compute {rate / 1e12:.0f} TFLOP/s in float32" in page
