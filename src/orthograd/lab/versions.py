"""Versions that a record keeps: of orthograd with its source commit, torch and Python."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from threading import Lock

import torch

from .. import __version__

ROOT = Path(__file__).parents[3]
"""The checkout, where this is one."""
VARIABLE = "ORTHOGRAD_COMMIT"
"""Names the commit where the source was copied without its history, as to a cluster."""
_ONE_AT_A_TIME = Lock()


def versions() -> dict[str, str]:
    """Return what a record was made with. Nothing compares runs by it."""
    with _ONE_AT_A_TIME:  # concurrent runs ask at once
        commit = source()
    ours = {"orthograd": __version__, "source": commit}
    return {**ours, "torch": torch.__version__, "python": platform.python_version()}


@cache
def source(root: Path = ROOT) -> str:
    """Return the commit of the source, with "+changes" if its code differs; without a checkout or git, the version."""
    if commit := os.environ.get(VARIABLE):
        return commit
    if not (root / ".git").exists():  # an installed package may lie in the checkout of something else
        return __version__
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--", "src"]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, cwd=root, env=surroundings, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    first, *rest = done.stdout.splitlines()
    commit = first.removeprefix("# branch.oid ")
    if commit == "(initial)":  # no commit yet
        return __version__
    return commit if all(line.startswith("#") for line in rest) else f"{commit}+changes"
