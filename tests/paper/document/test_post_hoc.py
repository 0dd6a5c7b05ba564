"""Norms of weights, training losses that rise again, and seeds that differ by their last epoch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from orthograd.lab.training.layers import layer_types_of
from orthograd.lab.training.methods import LAYER_TYPES
from orthograd.paper.document.blocks import Heading, Picture, Words
from orthograd.paper.document.post_hoc import (
    ENOUGH,
    LAYERS,
    last_epoch_part,
    losses_part,
    norm_of,
    norms_part,
    post_hoc_part,
    stretches_of,
)
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, Scale
from tests.paper.flat import tables
from tests.paper.made_runs import made_run, made_table1

RECORDS = Path(__file__).parents[3] / "docs/results/reproduction"
NORMS = {"head": 3.0, "norm_weight": 40.0, "norm_bias": 2.0, "convolution": 60.0}


def with_norms(run, norms):
    """A record whose parameters of a layer type have such a norm together."""
    types = layer_types_of("resnet18")
    many = {layer: sum(each == layer for each in types.values()) for layer in LAYER_TYPES}
    parameters = {
        name: {"kind": "function", "start": {"norm": 1.0}, "end": {"norm": norms[layer] / many[layer] ** 0.5}}
        for name, layer in types.items()
    }
    return {**run, "diagnosis": {"samples": 8, "parameters": parameters}}


def table_of(evidence):
    return tables(norms_part(evidence))[0]


@pytest.mark.slow
def test_layer_types_together_are_the_weight_norm_of_real_runs():
    records = Evidence.of(Scale(), folder=RECORDS).records.values()
    seen = set()
    for run in records:
        squares = sum(norm_of(run, layer, "end") ** 2 for layer in LAYERS)
        assert squares**0.5 == pytest.approx(run["weight_norm"], rel=1e-3)  # norms have four digits
        seen.add(run["config"]["model"])
    assert seen >= {"resnet18", "wide_resnet28_10"}


def test_a_smaller_norm_is_told():
    chosen = [config.as_dict() for config in EXPERIMENTS["table1"].configs() if config.seed < 6]
    runs = [made_run(config, {}) for config in chosen]
    evidence = {}
    for run in runs:
        half, more = 0.5 if run["config"]["method"] == "orthograd" else 1.0, 1 + 0.01 * run["config"]["seed"]
        norms = {**NORMS, "norm_bias": 2 * half * more, "head": 3 / half * more}
        evidence[run["hash"]] = with_norms(run, norms)
    rows = {row[1]: row for row in table_of(Evidence(evidence)).rows}
    assert rows["BatchNorm biases"][-1] == "lower"
    assert rows["head"][-1] == "higher"
    assert rows["convolutions"][-1] == "inconclusive"
    assert rows["head"][0] == "`resnet18`, 6 seeds"
    assert rows["BatchNorm biases"][5] == "0.500"


def test_methods_with_decay_on_convolutions_only_are_compared_with_each_other():
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["decay_conv_only"].configs()]
    longer = {"baseline": 1.0, "orthograd": 0.5, "decay_conv_only": 2.0, "decay_conv_only_orthograd": 3.0}
    records = {}
    for run in runs:
        factor = longer[run["config"]["method"]] * (1 + 0.01 * run["config"]["seed"])
        records[run["hash"]] = with_norms(run, {**NORMS, "head": 3 * factor})
    heads = [row for row in table_of(Evidence(records)).rows if row[1] == "head"]
    assert [row[0] for row in heads] == [
        "`resnet18_all_labels`, 3 seeds",
        "`resnet18_all_labels`, decay on convolutions only, 3 seeds",
    ]
    assert [row[5] for row in heads] == ["0.500", "1.500"]
    assert [row[-1] for row in heads] == ["lower", "higher"]


def test_runs_of_a_small_try_are_told_once_and_missing_layer_types_not_at_all():
    scale = Scale(seeds=2, epochs=1, model="mlp", dataset="digits", labels_per_class=10, shifts="none", device="cpu")
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["table1"].configs(scale)]
    parameters = {name: {"start": {"norm": 1.0}, "end": {"norm": 2.0}} for name in ("1.weight", *layer_types_of("mlp"))}
    records = {run["hash"]: {**run, "diagnosis": {"samples": 8, "parameters": parameters}} for run in runs}
    assert [row[1] for row in table_of(Evidence(records, scale)).rows] == ["head"]


def test_networks_of_others_are_left_out():
    assert layer_types_of("tests.lab.training.test_training:own_model") == {}
    scale = Scale(seeds=2, model="tests.lab.training.test_training:own_model", device="cpu")
    runs = [with_norms(made_run(config.as_dict(), {}), NORMS) for config in EXPERIMENTS["table1"].configs(scale)]
    assert list(norms_part(Evidence({run["hash"]: run for run in runs}, scale))) == []


def test_nothing_is_said_without_a_diagnosis_or_without_runs():
    assert list(norms_part(Evidence())) == []
    assert list(norms_part(Evidence({run["hash"]: run for run in made_table1()}))) == []


FALLING = [1.0 / epoch for epoch in range(1, 101)]
TURNING = [1.0 / epoch + max(0, epoch - 40) / 100 for epoch in range(1, 101)]


def loss_blocks(losses, seeds=3, experiment="full_data"):
    runs = []
    for config in EXPERIMENTS[experiment].configs():
        if config.seed < seeds:
            runs.append(made_run(config.as_dict(), {}) | {"losses": losses[config.method]})
    return list(losses_part(Evidence({run["hash"]: run for run in runs})))


def test_a_loss_that_rises_again_is_told_by_how_much():
    made = loss_blocks({"baseline": FALLING, "orthograd": TURNING})
    (told,) = tables(made)
    (plain, turned) = told.rows
    assert [row[0] for row in told.rows] == ["`resnet18_all_labels`, SGD", "`resnet18_all_labels`, ⊥Grad"]
    assert plain[3] == "10 (10 to 10)"
    assert plain[5] == "1.0 (1.0 to 1.0)"
    assert turned[3] == "4 (4 to 4)"
    lowest, last = (sum(TURNING[i : i + 10]) / 10 for i in (30, 90))
    assert turned[2].startswith(f"{lowest:.4f} ")
    assert turned[4].startswith(f"{last:.4f} ")
    assert turned[5].startswith(f"{last / lowest:.1f} ")


def test_decay_on_convolutions_only_stands_beside_it():
    losses = {
        "baseline": FALLING,
        "orthograd": TURNING,
        "decay_conv_only": FALLING,
        "decay_conv_only_orthograd": FALLING,
    }
    made = loss_blocks(losses, experiment="decay_conv_only")
    (told,) = tables(made)
    assert [row[0].partition(", ")[2] for row in told.rows] == [
        "SGD",
        "⊥Grad",
        "decay on convolutions only",
        "decay on convolutions only and ⊥Grad",
    ]
    assert [row[3] for row in told.rows] == ["10 (10 to 10)", "4 (4 to 4)", "10 (10 to 10)", "10 (10 to 10)"]
    (picture,) = (block for block in made if isinstance(block, Picture))
    assert "All 50,000 labels, 3 seeds; All labels, decay on convolutions only, 3 seeds" in picture.words


def test_a_loss_of_zero_breaks_nothing():
    (told,) = tables(loss_blocks({"baseline": FALLING, "orthograd": [1.0] + [0.0] * 99}))
    assert told.rows[1][5] == "inf (inf to inf)"


def test_both_losses_are_drawn():
    (picture,) = (b for b in loss_blocks({"baseline": FALLING, "orthograd": TURNING}) if isinstance(b, Picture))
    assert "All 50,000 labels, 3 seeds" in picture.words
    assert "with ⊥Grad: 1 in the first epoch, 0.61 in the last." in picture.svg


@pytest.mark.parametrize("length", [10, 17, 100])
def test_every_epoch_is_in_one_stretch(length):
    tenths = stretches_of([float(i) for i in range(length)])
    assert len(tenths) == 10
    assert tenths == sorted(tenths)
    assert stretches_of([2.0] * length) == [2.0] * 10


def test_short_trainings_and_single_runs_are_left_out():
    assert not loss_blocks({"baseline": FALLING[:9], "orthograd": TURNING[:9]})
    assert not loss_blocks({"baseline": FALLING, "orthograd": TURNING}, seeds=1)
    assert not loss_blocks({"baseline": FALLING, "orthograd": TURNING[:50]})


def runs_with(loss):
    """Table 1, the training loss of the last epoch being a function of a run's clean metrics."""
    runs = made_table1()
    for run in runs:
        run["losses"] = [1.0, loss(run["metrics"]["clean"])]
    return {run["hash"]: run for run in runs}


def last_epoch_blocks(runs):
    return list(last_epoch_part(Evidence(runs)))


def test_a_loss_that_orders_the_runs_is_found():
    made = last_epoch_blocks(runs_with(lambda metrics: 1 / metrics["top1_accuracy"]))
    (table,) = tables(made)
    assert [row[0] for row in table.rows] == ["`resnet18-baseline`", "`resnet18-orthograd`"]
    assert all(row[1] == "20" and row[3].startswith("−1.00 (") for row in table.rows)
    assert "(p < 0.05) with accuracy in 2, with ECE in" in next(b.text for b in made if isinstance(b, Words))
    picture = next(block for block in made if isinstance(block, Picture))
    assert picture.name == "table1-last-epoch.svg"
    assert picture.svg.count("mark baseline") == picture.svg.count("mark candidate") == 3 * 20 + 1  # and a legend


def test_few_runs_or_equal_numbers_say_nothing():
    whole = runs_with(lambda metrics: metrics["ece"])
    few = {name: run for name, run in whole.items() if run["config"]["seed"] < ENOUGH - 1}
    assert last_epoch_blocks(few) == []
    assert last_epoch_blocks({}) == []
    assert last_epoch_blocks(runs_with(lambda metrics: 0.25)) == []
    assert last_epoch_blocks(runs_with(lambda metrics: math.nan)) == []


def test_one_method_alone_has_a_row_and_no_picture():
    whole = runs_with(lambda metrics: metrics["ece"])
    made = last_epoch_blocks({name: run for name, run in whole.items() if run["config"]["method"] == "orthograd"})
    assert [len(block.rows) for block in tables(made)] == [1]
    assert not any(isinstance(block, Picture) for block in made)


def test_the_page_says_that_it_is_post_hoc():
    title, words, *_ = post_hoc_part(Evidence(runs_with(lambda metrics: metrics["ece"])))
    assert title == Heading(1, "Post hoc analyses")
    assert "post hoc" in words.text
    assert list(post_hoc_part(Evidence())) == []
