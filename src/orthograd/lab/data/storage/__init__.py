"""Data on the disk: arrays without pickles, files that are whole or absent, downloads that go on where they broke."""

from .arrays import digest, mapped, store
from .download import Source, UnavailableError, download
from .locking import alone
from .progress import Progress, Report, silent
from .whole_files import UNFINISHED, write

__all__ = [
    "UNFINISHED",
    "Progress",
    "Report",
    "Source",
    "UnavailableError",
    "alone",
    "digest",
    "download",
    "mapped",
    "silent",
    "store",
    "write",
]
