"""One self-contained web page of a comparison, from the records of its runs alone."""

from .document import page
from .failures import FailedRun

__all__ = ["FailedRun", "page"]
