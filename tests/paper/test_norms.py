"""Lengths of parameters by their kind: together they are the weight norm, and a table tells which arm's are shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthograd.lab.training.arms import LAYERS
from orthograd.lab.training.layers import kinds_of
from orthograd.paper.blocks import Table
from orthograd.paper.evidence import Evidence
from orthograd.paper.experiments import EXPERIMENTS
from orthograd.paper.norms import KINDS, norm_of, norms_part
from orthograd.paper.settings import Scale
from tests.paper.made_runs import made_run, made_table1

RECORDS = Path(__file__).parent.parent.parent / "docs/results/reproduction"
LENGTHS = {"head": 3.0, "norm_scale": 40.0, "norm_shift": 2.0, "convolution": 60.0}


def with_lengths(run, lengths):
    """A record whose parameters of a kind have such a length together."""
    of_kind = kinds_of("resnet18")
    many = {kind: sum(each == kind for each in of_kind.values()) for kind in LAYERS}
    parameters = {
        name: {"kind": "function", "start": {"norm": 1.0}, "end": {"norm": lengths[kind] / many[kind] ** 0.5}}
        for name, kind in of_kind.items()
    }
    return {**run, "diagnosis": {"samples": 8, "parameters": parameters}}


def table_of(evidence):
    return next(block for block in norms_part(evidence) if isinstance(block, Table))


def test_kinds_together_are_the_weight_norm_of_real_runs():
    found = Evidence.of(Scale(), folder=RECORDS).records.values()
    seen = set()
    for run in found:
        squares = sum(norm_of(run, kind, "end") ** 2 for kind in KINDS)
        assert squares**0.5 == pytest.approx(run["weight_norm"], rel=1e-3)  # norms have four digits
        seen.add(run["config"]["model"])
    assert seen >= {"resnet18", "wide_resnet28_10"}


def test_a_kind_that_is_shorter_is_told():
    chosen = [config.as_dict() for config in EXPERIMENTS["table1"].configs() if config.seed < 6]
    runs = [made_run(config, {}) for config in chosen]
    evidence = {}
    for run in runs:
        half, more = 0.5 if run["config"]["arm"] == "orthograd" else 1.0, 1 + 0.01 * run["config"]["seed"]
        lengths = {**LENGTHS, "norm_shift": 2 * half * more, "head": 3 / half * more}
        evidence[run["hash"]] = with_lengths(run, lengths)
    rows = {row[1]: row for row in table_of(Evidence(evidence)).rows}
    assert rows["batch-norm shifts"][-1] == "shorter"
    assert rows["head"][-1] == "longer"
    assert rows["convolutions"][-1] == "undecided"
    assert rows["head"][0] == "`resnet18`, 6 seeds"
    assert rows["batch-norm shifts"][5] == "0.500"


def test_arms_that_spare_decay_are_compared_with_each_other():
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["spared"].configs()]
    longer = {"baseline": 1.0, "orthograd": 0.5, "spared": 2.0, "spared_orthograd": 3.0}
    found = {}
    for run in runs:
        factor = longer[run["config"]["arm"]] * (1 + 0.01 * run["config"]["seed"])
        found[run["hash"]] = with_lengths(run, {**LENGTHS, "head": 3 * factor})
    heads = [row for row in table_of(Evidence(found)).rows if row[1] == "head"]
    assert [row[0] for row in heads] == [
        "`resnet18_all_labels`, 3 seeds",
        "`resnet18_all_labels`, decay spared, 3 seeds",
    ]
    assert [row[5] for row in heads] == ["0.500", "1.500"]
    assert [row[-1] for row in heads] == ["shorter", "longer"]


def test_runs_of_a_small_try_are_told_once_and_kinds_that_are_missing_not_at_all():
    scale = Scale(seeds=2, epochs=1, model="mlp", dataset="digits", labels_per_class=10, shifts="none", device="cpu")
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["table1"].configs(scale)]
    parameters = {name: {"start": {"norm": 1.0}, "end": {"norm": 2.0}} for name in ("1.weight", *kinds_of("mlp"))}
    found = {run["hash"]: {**run, "diagnosis": {"samples": 8, "parameters": parameters}} for run in runs}
    assert [row[1] for row in table_of(Evidence(found, scale)).rows] == ["head"]


def test_networks_of_others_are_left_out():
    assert kinds_of("tests.lab.training.test_training:own_model") == {}
    scale = Scale(seeds=2, model="tests.lab.training.test_training:own_model", device="cpu")
    runs = [with_lengths(made_run(config.as_dict(), {}), LENGTHS) for config in EXPERIMENTS["table1"].configs(scale)]
    assert list(norms_part(Evidence({run["hash"]: run for run in runs}, scale))) == []


def test_nothing_is_said_without_a_diagnosis_or_without_runs():
    assert list(norms_part(Evidence())) == []
    assert list(norms_part(Evidence({run["hash"]: run for run in made_table1()}))) == []
