"""Progress of runs: a bar on a terminal, and in a log a line now and then."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orthograd.commands import progress
from orthograd.experiment import Event

CONFIGS = [{"seed": seed, "epochs": 10} for seed in range(4)]


@pytest.fixture
def seconds(monkeypatch):
    """A clock that a test moves."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines(console):
    return console.file.getvalue().splitlines()


def test_a_log_gets_a_line_a_minute(seconds):
    console = Console(file=io.StringIO(), width=100)
    with progress.Progress(console, CONFIGS) as shown:
        for seconds[0], event in (
            (30.0, Event("finished", CONFIGS[0])),
            (61.0, Event("progress", CONFIGS[1], {"epoch": 4})),
            (90.0, Event("progress", CONFIGS[1], {"epoch": 8})),
            (130.0, Event("finished", CONFIGS[1])),
        ):
            shown.notice(event)
    assert [line.partition("  ")[2] for line in lines(console)] == [
        "1 of 4 runs, 35% of the epochs",
        "2 of 4 runs, 50% of the epochs",
    ]


def test_a_terminal_gets_a_bar_and_no_such_lines(seconds):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with progress.Progress(console, CONFIGS) as shown:
        seconds[0] = 500.0
        shown.notice(Event("finished", CONFIGS[0]))
    assert "1 of 4 runs" in console.file.getvalue()
    assert "of the epochs" not in console.file.getvalue()
