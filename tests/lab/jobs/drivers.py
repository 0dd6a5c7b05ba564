"""Processes that execute a grid, for tests that kill them."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

from orthograd.lab.jobs.executors import execute
from tests.lab.jobs import toy_runs
from tests.patience import PATIENCE

INTERRUPTED = 2


class Driver:
    """A process, in a separate session, that executes a grid of toy runs and reports their events."""

    def __init__(self, grid, store, executor):
        self._reading, writing = os.pipe()
        self.pid = os.fork()  # a fork with torch imported: a new Python would take most of the test's time
        if self.pid == 0:
            self._be_driver(grid, store, executor, writing)
        os.close(writing)
        self._text = b""

    def _be_driver(self, grid, store, executor, writing):
        code = 1
        try:
            os.setsid()
            tell = lambda event: os.write(writing, f"{event.type} {event.hash}\n".encode())  # noqa: E731
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray leaves its own handler in processes that have used it
            os.write(writing, b"here\n")
            execute(grid, toy_runs.train, store, executor=executor, on_event=tell)
            code = 0
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            os._exit(code)

    def events(self):
        """All events, after it has ended."""
        while chunk := os.read(self._reading, 65536):
            self._text += chunk
        return [tuple(line.split()) for line in self._text.decode().splitlines()[1:]]

    def wait_for(self, word):
        """True if it reported an event of this type, or a line with this word, before it ended."""
        deadline = time.monotonic() + PATIENCE
        while word.encode() not in self._text:
            assert select.select([self._reading], [], [], max(0, deadline - time.monotonic()))[0], f"no {word}"
            if not (chunk := os.read(self._reading, 65536)):
                return False
            self._text += chunk
        return True

    def signal(self, number, *, group):
        (os.killpg if group else os.kill)(self.pid, number)

    def join(self, seconds=PATIENCE):
        """Its exit code."""
        deadline = time.monotonic() + seconds
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
                raise AssertionError(f"the driver ran for more than {seconds} s")
            time.sleep(0.005)
        return os.waitstatus_to_exitcode(ended[1])

    def wait_for_all(self, seconds=PATIENCE):
        """Seconds until all processes of the session have ended."""
        start = time.monotonic()
        while members := living(self.pid):
            if time.monotonic() > start + seconds:
                os.killpg(self.pid, signal.SIGKILL)
                raise AssertionError(f"processes {members} still live after {seconds} s")
            time.sleep(0.005)
        return time.monotonic() - start


def living(session):
    """Processes of a session, without zombies."""
    numbers = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state not in "ZX":
            numbers.append(int(path.parent.name))
    return numbers
