"""The packages that the extras of pyproject.toml bring, and what to say where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

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
