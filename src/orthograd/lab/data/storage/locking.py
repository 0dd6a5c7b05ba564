"""One process at a time: a lock that the operating system releases when its owner dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .progress import Progress, Report
from .whole_files import UNFINISHED, naming

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def alone(folder: Path, report: Report) -> Iterator[None]:
    """Have the folder, which is made if need be, for this process until the end of the block; wait if another has it.

    What a killed process left half-written there is removed.
    """
    path = folder / ".lock"
    with naming(folder, "be used"):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115 - closed below, where errors of the block do not pass for those of opening
    # The file stays: were it deleted, two processes could lock two files of one name.
    with file:
        if _is_locked(file.fileno(), path, report):
            for leftover in folder.glob(f".*{UNFINISHED}"):
                leftover.unlink()
        yield


def _is_locked(descriptor: int, path: Path, report: Report) -> bool:
    if fcntl is None:
        return False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress(f"another process is at work in {path.parent}: waiting for it"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        # Some network disks have no locks. Files are whole and checked even so, two processes merely do the same work.
        return False
    return True
