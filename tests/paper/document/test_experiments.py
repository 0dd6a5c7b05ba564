"""Experiments of several methods: told with their seeds, and drawn by the seeds that all of them have."""

from __future__ import annotations

import re

import pytest

from orthograd.paper.document.blocks import Picture, Table
from orthograd.paper.document.experiments import part_of
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS
from tests.paper.flat import flat
from tests.paper.made_runs import made_run

LAYERS, RIVALS = EXPERIMENTS["layers"], EXPERIMENTS["rivals"]
ECE = {"baseline": 0.2, "orthograd": 0.1, "orthograd_head": 0.12, "orthograd_norm_weight": 0.3}
ECE |= {"focal": 0.06, "focal_orthograd": 0.08, "mixup": 0.05, "mixup_orthograd": 0.03}


def blocks(seeds, experiment=LAYERS):
    """Of an experiment, each method with its number of seeds."""
    runs = [
        made_run(config.as_dict(), {"ece": ECE[config.method]})
        for config in experiment.configs()
        if config.seed < seeds.get(config.method, 0)
    ]
    return flat(part_of(experiment, Evidence({run["hash"]: run for run in runs})))


def test_methods_are_drawn_by_the_seeds_that_all_have():
    made = blocks({"baseline": 10, "orthograd": 10, "orthograd_head": 5, "orthograd_norm_weight": 4})
    (picture,) = (block for block in made if isinstance(block, Picture))
    assert picture.name == "layers-methods.svg"
    assert "on the 4 seeds that all methods have" in picture.words
    assert picture.svg.count("mark candidate") == 6 * 3  # panels and methods
    panel = next(part for part in picture.svg.split("<svg ") if "ECE, clean images: each method" in part)
    zero = float(re.search(r'class="axis" x1="([\d.]+)"', panel)[1])
    places = [float(x) + 3.2 for x in re.findall(r'mark candidate" x="([\d.]+)"', panel)]
    assert [place < zero for place in places] == [True, True, False]
    told = re.search(r"<desc[^>]*>(.*?)</desc>", panel)[1].replace("−", "-").split("; ")
    assert [each.rpartition(" ")[0] for each in told] == ["⊥Grad", "⊥Grad, head", "⊥Grad, norm weights"]
    assert [float(each.rpartition(" ")[2]) for each in told] == pytest.approx([-0.1, -0.08, 0.1], abs=0.005)


def test_each_method_has_a_column_with_its_seeds():
    made = blocks({"baseline": 10, "orthograd": 10, "orthograd_head": 2, "orthograd_norm_weight": 1})
    (own,) = (block for block in made if isinstance(block, Table))
    assert own.header == ("images", "metric", "SGD", "⊥Grad, 10 seeds", "⊥Grad, head, 2 seeds")  # one seed has no pair
    (row,) = (row for row in own.rows if row[:2] == ("clean", "ECE ↓"))
    assert float(row[2].split()[0]) == pytest.approx(0.2, abs=0.002)
    assert row[3].startswith("−0.09")
    assert row[3].endswith(", better")


def test_a_single_method_has_a_column_for_each_number():
    (own,) = (block for block in blocks({"baseline": 5, "orthograd_head": 5}) if isinstance(block, Table))
    name = "⊥Grad, head"
    assert own.header[2:] == ("SGD", name, f"{name} − SGD (95%)", "p, Holm", f"{name} is")


@pytest.mark.parametrize("seeds", [{"orthograd_head": 2}, {"orthograd": 0, "orthograd_head": 5}])
def test_too_few_seeds_or_methods_are_not_drawn(seeds):
    made = blocks({"baseline": 10, "orthograd": 10, **seeds})
    assert not any(isinstance(block, Picture) for block in made)


def test_seeds_of_other_experiments_that_are_left_out_are_told():
    others = [config for config in EXPERIMENTS["precision"].configs() if config.precision == "bf16"]
    runs = [made_run(config.as_dict(), {}) for config in (*others, *LAYERS.configs())]
    told = [
        block.text for block in part_of(LAYERS, Evidence({run["hash"]: run for run in runs})) if hasattr(block, "text")
    ]
    assert any(
        "Seeds used here: SGD 10 of 20, ⊥Grad 10 of 20; other experiments use the rest." in text for text in told
    )
    assert not any(
        "Seeds used here" in block.text for block in blocks({"baseline": 3, "orthograd": 3}) if hasattr(block, "text")
    )


def test_what_comes_on_top_of_another_method_is_compared_with_that():
    assert RIVALS.on_top == {each: f"{each}_orthograd" for each in ("label_smoothing", "focal", "mixup")}
    assert LAYERS.on_top == {}
    seeds = {"baseline": 5, "orthograd": 5, "focal": 5, "focal_orthograd": 4, "mixup": 5, "mixup_orthograd": 2}
    made = [block for block in blocks(seeds, RIVALS) if isinstance(block, Table)]
    assert made[1].header == ("images", "metric", "focal loss, 4 seeds", "mixup, 2 seeds")
    (row,) = (row for row in made[1].rows if row[:2] == ("clean", "ECE ↓"))
    assert [float(cell.split(" ")[0].replace("−", "-")) for cell in row[2:]] == pytest.approx([0.02, -0.02], abs=0.005)
    assert row[2].endswith(", worse")
