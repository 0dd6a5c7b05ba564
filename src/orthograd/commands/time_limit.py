"""An end to long work at a given time, as if somebody had pressed Ctrl-C."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeIsUp(KeyboardInterrupt):
    """Ends training as Ctrl-C does: every run goes on from its checkpoint next time."""


@contextmanager
def interrupted_after(minutes: float | None) -> Iterator[None]:
    """TimeIsUp in the main thread after so long, whatever it is at; None for never."""
    is_up, main = threading.Event(), threading.main_thread().ident or 0

    def interrupt() -> None:
        is_up.set()
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, signal.SIGINT)  # ends a sleep too
        else:  # Windows
            _thread.interrupt_main()

    timer = threading.Timer(0 if minutes is None else 60 * minutes, interrupt)
    timer.daemon = True
    try:
        if minutes is not None:
            timer.start()
        yield
    except KeyboardInterrupt:
        if is_up.is_set():
            raise TimeIsUp from None
        raise
    finally:
        timer.cancel()
