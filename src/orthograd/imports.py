"""Names that are imported when they are first used, and packages that may be missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for the package that finds each name in its module and keeps it.

    >>> lazily("orthograd", {"attach": "optimizer"})("attach").__name__
    'attach'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return find


LAB = {
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "PIL": "pillow",
    "pyarrow": "pyarrow",
    "rich": "rich",
    "safetensors": "safetensors",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "typer": "typer",
}
"""Modules of the extra ``lab``, each with the name that pip has for its package."""


def require(*modules: str, extra: str = "lab") -> None:
    """Raise ImportError where some of these modules are missing; none of them is imported.

    >>> require("no_such_module")
    Traceback (most recent call last):
    ImportError: expected no_such_module to be installed; in a clone of orthograd: pip install '.[lab]'
    """
    if missing := [LAB.get(module, module) for module in modules if find_spec(module) is None]:
        raise ImportError(advised(f"expected {', '.join(missing)} to be installed", extra))


def advised(words: object, extra: str = "lab") -> str:
    """These words about something that is missing, and the command that installs it, unless they say so already."""
    return f"{words}" if "pip install" in f"{words}" else f"{words}; in a clone of orthograd: pip install '.[{extra}]'"
