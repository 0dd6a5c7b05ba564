"""Models and data sets by name, or by import path where they are not ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def found(name: str, known: Mapping[str, Callable[..., Any]], what: str) -> Callable[..., Any]:
    """The function of that name, or the one at an import path.

    >>> found("math:sqrt", {}, "a function")(4.0)
    2.0
    """
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"expected {what} among {', '.join(known)}, or an import path like package.module:name, got {name}"
        )
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"expected {what} at the import path {name}, but {error}") from error
    if not callable(function):
        raise ValueError(f"expected a function at the import path {name}, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]
