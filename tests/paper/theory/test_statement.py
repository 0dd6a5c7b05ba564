from __future__ import annotations

import math

import pytest

from orthograd.paper.theory.statement import Demonstration, Statement, thinned
from orthograd.paper.theory.suite import DEMONSTRATIONS, as_record, demonstrated, with_tables


def test_a_statement_can_fail():
    assert Statement("a", "b", 1.0, "≤", 1.0).holds
    assert not Statement("a", "b", 1.1, "≤", 1.0).holds
    assert not Statement("a", "b", 0.9, "≥", 1.0).holds
    assert not Statement("a", "b", math.nan, "≤", 1.0).holds
    with pytest.raises(ValueError, match="<"):
        Statement("a", "b", 1.0, "<", 1.0)


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="nonsense"):
        next(iter(demonstrated("nonsense")))


def test_tables_need_their_place_in_the_document():
    record = as_record([Demonstration("path_length", "", (Statement("|x|", "m", 2.0, "≤", 1.0),))])
    text = with_tables("<!-- path_length: written by orthograd theory -->\nstale\n<!-- end -->\nrest\n", record)
    assert "| \\|x\\| | m | 2 | ≤ 1 | **no** |" in text
    assert "stale" not in text
    assert text.endswith("rest\n")
    with pytest.raises(ValueError, match="path_length"):
        with_tables("nothing here", record)


def test_thinned_keeps_both_ends():
    chosen = thinned(list(range(10_000)), 50)
    assert chosen[0] == [0, 0]
    assert chosen[-1] == [9999, 9999]
    assert len(chosen) < 110


def test_the_command_names_every_demonstration():
    from orthograd.cli.theory import NAMES

    assert ", ".join(DEMONSTRATIONS) == NAMES
