"""Work ends at its time whatever it is at, and only then."""

from __future__ import annotations

import signal
import time

import pytest

from orthograd.cli.execution import TimeIsUp, interrupted_after


@pytest.mark.parametrize("minutes", [0, 0.2 / 60])
def test_work_that_tells_nothing_is_ended_too(minutes):
    started = time.monotonic()
    with pytest.raises(TimeIsUp), interrupted_after(minutes):
        time.sleep(20)
    assert time.monotonic() - started < 10


def test_time_is_up_even_where_ctrl_c_is_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with pytest.raises(TimeIsUp), interrupted_after(0.1 / 60):
            time.sleep(20)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_before_the_time_is_no_end_of_time():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as stopped, interrupted_after(10):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.type is KeyboardInterrupt


@pytest.mark.parametrize("minutes", [1e300, float("inf")])
def test_more_time_than_a_timer_can_count_is_no_end(minutes):
    with interrupted_after(minutes):
        time.sleep(0.01)


@pytest.mark.parametrize("minutes", [None, 0.05 / 60])
def test_work_that_is_done_in_time_is_left_alone(minutes):
    with interrupted_after(minutes):
        pass
    time.sleep(0.1)  # past the time
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_time_that_was_up_inside_a_destructor_is_seen_at_the_next_look():
    class Slow:
        def __del__(self):
            time.sleep(0.3)  # Python drops what is raised here

    def work():
        with interrupted_after(0.1 / 60) as look:
            look()
            Slow()
            look()
            pytest.fail("the time was up")

    with pytest.raises(TimeIsUp):
        work()
