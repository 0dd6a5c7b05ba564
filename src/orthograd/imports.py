"""Lazy imports of public names, and optional packages: whether Triton is there, errors where another is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for the package that imports each name from its module on first use. A module may be a name.

    >>> lazily("orthograd", {"attach": "optimizer"})("attach").__name__
    'attach'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f".{homes[name]}", package)
        value = module if name == homes[name] else getattr(module, name)
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
"""Modules of the extra ``lab``, with the pip name of each."""


def require(*modules: str, extra: str = "lab") -> None:
    """Raise ImportError if any of these modules is missing. None of them is imported.

    >>> require("no_such_module")
    Traceback (most recent call last):
    ImportError: expected no_such_module to be installed; in a clone of orthograd: pip install '.[lab]'
    """
    if missing := [LAB.get(module, module) for module in modules if find_spec(module) is None]:
        raise ImportError(advised(f"expected {', '.join(missing)} to be installed", extra))


def advised(words: object, extra: str = "lab") -> str:
    """A message about a missing package, with the command that installs it added if it has none."""
    return f"{words}" if "pip install" in f"{words}" else f"{words}; in a clone of orthograd: pip install '.[{extra}]'"


OLDEST_TRITON = (3, 5)


@cache
def has_triton() -> bool:
    """True if Triton is installed in a version that compiles the kernels."""
    try:
        import triton
    except ImportError:
        return False
    return tuple(map(int, triton.__version__.split(".")[:2])) >= OLDEST_TRITON
