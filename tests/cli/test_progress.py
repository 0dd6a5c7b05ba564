"""Progress of runs: a bar on a terminal, and in a log a line now and then."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from orthograd.cli import execution
from orthograd.lab.jobs.jobs import Event
from tests.patience import PATIENCE

CONFIGS = [{"seed": seed, "epochs": 10} for seed in range(4)]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(execution, "LOG_EVERY", 0.02)


def lines(console):
    return [line.partition("  ")[2] for line in console.file.getvalue().splitlines()]


def waited_for(console, line):
    """Whether it comes: the test fails after a while, and not sooner."""
    end = time.monotonic() + PATIENCE
    while line not in lines(console) and time.monotonic() < end:
        time.sleep(0.01)
    return line in lines(console)


def test_a_log_gets_lines_even_while_nothing_happens():
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    with execution.Progress(console, CONFIGS) as shown:
        assert waited_for(console, "0 of 4 runs, 0% of their epochs")
        shown.notice(Event("finished", CONFIGS[0]))
        shown.notice(Event("progress", CONFIGS[1], {"epoch": 4}))
        assert waited_for(console, "1 of 4 runs, 35% of their epochs")
        shown.notice(Event("failed", CONFIGS[1]))
        assert waited_for(console, "2 of 4 runs (1 failed), 50% of their epochs")
    told = lines(console)
    time.sleep(0.2)
    assert lines(console) == told


def test_a_terminal_gets_a_bar_and_no_such_lines():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with execution.Progress(console, CONFIGS) as shown:
        shown.notice(Event("finished", CONFIGS[0]))
        time.sleep(0.2)
    assert "1 of 4 runs" in console.file.getvalue()
    assert "of their epochs" not in console.file.getvalue()
