"""An end to long work at a given time, whatever it is at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST = 3e8  # seconds


class TimeIsUp(KeyboardInterrupt):
    """Ends training as Ctrl-C does: every run goes on from its checkpoint next time."""


@contextmanager
def interrupted_after(minutes: float | None) -> Iterator[Callable[[], None]]:
    """TimeIsUp in the main thread after so long; None for never.

    By a signal of its own: where Ctrl-C is ignored, as in the background of a script, it comes all the same. Inside a
    destructor Python drops it, so the block is given a function that raises it again, to be called now and then.
    """
    if minutes is None:
        yield lambda: None
        return
    if not hasattr(signal, "setitimer"):
        raise ValueError("expected no time limit on a system that has no timers, such as Windows")

    is_up = threading.Event()

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # what ends then must not be interrupted itself
        is_up.set()
        raise TimeIsUp

    def look() -> None:
        if is_up.is_set():
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    try:
        # Zero would be never, and no timer counts beyond ten years; and once more every second, for the first may come
        # just before a long sleep.
        signal.setitimer(signal.ITIMER_REAL, min(max(60 * minutes, 1e-6), LONGEST), 1.0)
        yield look
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
