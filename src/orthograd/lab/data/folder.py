"""Where data lies on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else the one that ORTHOGRAD_DATA names, else orthograd in the user's cache.

    >>> data_folder("pictures").name
    'pictures'
    """
    given = folder if folder is not None else os.environ.get("ORTHOGRAD_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # By its specification a relative XDG_CACHE_HOME counts as none.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "orthograd"
