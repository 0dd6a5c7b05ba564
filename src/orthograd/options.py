"""The options of ⊥Grad, for an optimizer or for one of its parameter groups."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

CHOICES = {
    "granularity": ("tensor", "row", "group", "model"),
    "project": ("gradient", "update"),
    "engine": ("auto", "reference", "torch", "triton"),
}


@dataclass(frozen=True)
class Options:
    """The options of `orthograd.attach`, validated."""

    renormalize: bool = True
    granularity: str = "tensor"
    project: str = "gradient"
    scalars: bool = False
    decoupled_decay: bool | None = None
    engine: str = "auto"

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("renormalize", "scalars"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"expected {name} to be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.decoupled_decay, bool | None):
            raise TypeError(f"expected decoupled_decay to be True, False or None, got {self.decoupled_decay!r}")

    def for_group(self, group: Mapping[str, Any]) -> Options | None:
        """The options of a parameter group, from its key ``"orthogonal"``; None if that is False.

        >>> Options().for_group({"params": [], "orthogonal": False}) is None
        True
        >>> Options().for_group({"params": [], "orthogonal": {"granularity": "row"}}).granularity
        'row'
        """
        choice = group.get("orthogonal", True)
        if isinstance(choice, bool):
            return self if choice else None
        names = [field.name for field in fields(self)]
        if not isinstance(choice, Mapping) or not set(choice) <= set(names):
            raise ValueError(f'expected "orthogonal" to be True, False or options among {names}, got {choice!r}')
        return replace(self, **choice)


def without_published_names(keywords: dict[str, Any], *, stacklevel: int) -> dict[str, Any]:
    """The keywords with ``grad_renormalization``, the published name of ``renormalize``, renamed with a warning."""
    if "grad_renormalization" not in keywords:
        return keywords
    if "renormalize" in keywords:
        raise TypeError("expected renormalize or grad_renormalization, which mean the same, got both")
    warnings.warn("grad_renormalization is called renormalize here", FutureWarning, stacklevel=stacklevel + 1)
    return {"renormalize" if name == "grad_renormalization" else name: value for name, value in keywords.items()}
