"""Whether runs differ by their last epoch: told by ranks, over arms with enough runs, and drawn."""

from __future__ import annotations

import math

from orthograd.paper.blocks import Picture, Table, Words
from orthograd.paper.evidence import Evidence
from orthograd.paper.spread import ENOUGH, spread_part
from tests.paper.made_runs import made_table1


def runs_with(loss):
    """Table 1, the training loss of the last epoch being a function of a run's clean metrics."""
    runs = made_table1()
    for run in runs:
        run["losses"] = [1.0, loss(run["metrics"]["clean"])]
    return {run["hash"]: run for run in runs}


def blocks(runs):
    return list(spread_part(Evidence(runs)))


def test_a_loss_that_orders_the_runs_is_found():
    found = blocks(runs_with(lambda metrics: 1 / metrics["top1_accuracy"]))
    table = next(block for block in found if isinstance(block, Table))
    assert [row[0] for row in table.rows] == ["`resnet18-baseline`", "`resnet18-orthograd`"]
    assert all(row[1] == "20" and row[3].startswith("−1.00 (") for row in table.rows)
    assert "(p < 0.05) with accuracy in 2, with ECE in" in [b.text for b in found if isinstance(b, Words)][1]
    picture = next(block for block in found if isinstance(block, Picture))
    assert picture.name == "table1-last-epoch.svg"
    assert picture.svg.count("mark baseline") == picture.svg.count("mark candidate") == 3 * 20 + 1  # and a legend


def test_few_runs_or_equal_numbers_say_nothing():
    whole = runs_with(lambda metrics: metrics["ece"])
    few = {name: run for name, run in whole.items() if run["config"]["seed"] < ENOUGH - 1}
    assert blocks(few) == []
    assert blocks({}) == []
    assert blocks(runs_with(lambda metrics: 0.25)) == []
    assert blocks(runs_with(lambda metrics: math.nan)) == []


def test_one_arm_alone_has_a_row_and_no_picture():
    whole = runs_with(lambda metrics: metrics["ece"])
    found = blocks({name: run for name, run in whole.items() if run["config"]["arm"] == "orthograd"})
    assert [len(block.rows) for block in found if isinstance(block, Table)] == [1]
    assert not any(isinstance(block, Picture) for block in found)
