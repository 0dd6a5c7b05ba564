"""Whether training losses rise again, as the page tells it."""

from __future__ import annotations

import pytest

from orthograd.paper.blocks import Picture, Table
from orthograd.paper.evidence import Evidence
from orthograd.paper.experiments import EXPERIMENTS
from orthograd.paper.turning import stretches_of, turning_part
from tests.paper.made_runs import made_run

FALLING = [1.0 / epoch for epoch in range(1, 101)]
TURNING = [1.0 / epoch + max(0, epoch - 40) / 100 for epoch in range(1, 101)]


def blocks(losses, seeds=3, experiment="full_data"):
    runs = []
    for config in EXPERIMENTS[experiment].configs():
        if config.seed < seeds:
            runs.append(made_run(config.as_dict(), {}) | {"losses": losses[config.arm]})
    return list(turning_part(Evidence({run["hash"]: run for run in runs})))


def test_a_loss_that_rises_again_is_told_by_how_much():
    found = blocks({"baseline": FALLING, "orthograd": TURNING})
    (told,) = (block for block in found if isinstance(block, Table))
    (plain, turned) = told.rows
    assert [row[0] for row in told.rows] == ["`resnet18_all_labels`, SGD", "`resnet18_all_labels`, ⊥Grad"]
    assert plain[3] == "10 (10 to 10)"
    assert plain[5] == "1.0 (1.0 to 1.0)"
    assert turned[3] == "4 (4 to 4)"
    lowest, last = (sum(TURNING[i : i + 10]) / 10 for i in (30, 90))
    assert turned[2].startswith(f"{lowest:.4f} ")
    assert turned[4].startswith(f"{last:.4f} ")
    assert turned[5].startswith(f"{last / lowest:.1f} ")


def test_what_sparing_decay_does_stands_beside_it():
    losses = {"baseline": FALLING, "orthograd": TURNING, "spared": FALLING, "spared_orthograd": FALLING}
    found = blocks(losses, experiment="spared")
    (told,) = (block for block in found if isinstance(block, Table))
    assert [row[0].partition(", ")[2] for row in told.rows] == [
        "SGD",
        "⊥Grad",
        "decay spared",
        "decay spared and ⊥Grad",
    ]
    assert [row[3] for row in told.rows] == ["10 (10 to 10)", "4 (4 to 4)", "10 (10 to 10)", "10 (10 to 10)"]
    (picture,) = (block for block in found if isinstance(block, Picture))
    assert "All 50,000 labels, 3 seeds; All 50,000 labels, decay spared, 3 seeds" in picture.words


def test_a_loss_of_zero_breaks_nothing():
    (told,) = (b for b in blocks({"baseline": FALLING, "orthograd": [1.0] + [0.0] * 99}) if isinstance(b, Table))
    assert told.rows[1][5] == "inf (inf to inf)"


def test_both_losses_are_drawn():
    (picture,) = (b for b in blocks({"baseline": FALLING, "orthograd": TURNING}) if isinstance(b, Picture))
    assert "All 50,000 labels, 3 seeds" in picture.words
    assert "with ⊥Grad: 1 in the first epoch, 0.61 in the last." in picture.svg


@pytest.mark.parametrize("length", [10, 17, 100])
def test_every_epoch_is_in_one_stretch(length):
    found = stretches_of([float(i) for i in range(length)])
    assert len(found) == 10
    assert found == sorted(found)
    assert stretches_of([2.0] * length) == [2.0] * 10


def test_short_trainings_and_single_runs_are_left_out():
    assert not blocks({"baseline": FALLING[:9], "orthograd": TURNING[:9]})
    assert not blocks({"baseline": FALLING, "orthograd": TURNING}, seeds=1)
    assert not blocks({"baseline": FALLING, "orthograd": TURNING[:50]})
