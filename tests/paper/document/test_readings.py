"""What else the paper's correlation could be of: computed from records, and said only where ours does not fit."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from orthograd.paper.document.blocks import Table, Words
from orthograd.paper.document.experiments import answer_of
from orthograd.paper.document.readings import READINGS, _expected, other_readings
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, Scale
from orthograd.paper.verdicts.claims import Printed
from tests.paper.made_runs import made_table1

RECORDS = Path(__file__).parents[3] / "docs/results/reproduction"
TABLE = EXPERIMENTS["table1"]
PRINTED = Printed(Decimal("0.445"))


def readings(evidence):
    return list(other_readings(answer_of(TABLE, evidence)))


def test_nothing_is_said_where_ours_fits_or_runs_are_missing():
    assert readings(Evidence({run["hash"]: run for run in made_table1()})) == []
    assert readings(Evidence()) == []


def test_a_reading_that_fits_both_numbers_is_named():
    runs = {run["hash"]: run for run in made_table1()}
    for run in runs.values():
        name = "confidence_accuracy_correlation"
        run["after_temperature"]["metrics"][name] = run["metrics"]["clean"][name]
        for images in run["metrics"].values():
            images[name] -= 0.1
    sentence, table = readings(Evidence(runs))
    assert isinstance(sentence, Words)
    assert "0.445 and 0.467, lie outside our range, alone among the rows" in sentence.text
    assert sentence.text.endswith(": both numbers fit “the same after temperature scaling”.")
    assert isinstance(table, Table)
    assert [row[-1] for row in table.rows[:2]] == ["neither", "SGD and ⊥Grad"]


def test_a_correlation_over_seeds_has_the_spread_of_one():
    """Drawn with a correlation of 0.6 over 20 seeds: other 20 fall into the range in 95 of 100 cases."""
    chance, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        drawn = chance.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=(2, 20))
        ours, theirs = (np.corrcoef(*sample.T)[0, 1] for sample in drawn)
        inside += theirs in _expected([ours], PRINTED, 20, 20)
    assert 0.93 < inside / 2000 < 0.97
    assert _expected([0.5], PRINTED, 3, 20) == (-1, 1)


def test_committed_records_were_tried_in_every_way():
    evidence = Evidence.of(Scale(), folder=RECORDS)
    pair = evidence.pair(TABLE)
    (_, table) = readings(evidence)
    assert [row[0] for row in table.rows] == list(READINGS)
    scaled = [run["after_temperature"]["metrics"]["confidence_accuracy_correlation"] for run in pair.baseline]
    assert table.rows[1][1].startswith(f"{np.mean(scaled):.4f} (")


def test_ranks_of_bins_by_hand():
    # Half of the images in each bin, right in 0 and in 1 of 2: rank and correctness as (1, 1, 2, 2) and (0, 0, 0, 1).
    curve = {"share": [0.0, 0.5, 0.5], "confidence": [None, 0.3, 0.9], "accuracy": [None, 0.0, 0.5]}
    run = {"reliability": {"clean": curve, "after_temperature": curve}}
    expected = np.corrcoef([1, 1, 2, 2], [0, 0, 0, 1])[0, 1]
    assert READINGS["images, the rank of their confidence (from ten bins)"]([run]) == [pytest.approx(expected)]
    assert READINGS["ten bins, their confidence and accuracy"]([run]) == [pytest.approx(1.0)]
    alone = {"share": [1.0], "confidence": [0.9], "accuracy": [0.5]}
    lone = {"reliability": {"clean": alone, "after_temperature": alone}}
    for name in ("images, the rank of their confidence (from ten bins)", "ten bins, their confidence and accuracy"):
        assert READINGS[name]([lone]) == []
    assert (
        READINGS["images, the rank of their confidence (from ten bins)"]([{"reliability": {"after_temperature": None}}])
        == []
    )
