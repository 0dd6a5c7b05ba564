"""A class with ⊥Grad for each class of `torch.optim`, made when it is asked for."""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import cache
from typing import Any, cast

import torch
from torch.optim import Optimizer

from ..attachment import Attachment
from ..options import Options, without_published_names
from ..partition import Partition

BASES = {
    f"Ortho{name}": base
    for name, base in sorted(vars(torch.optim).items())
    if isinstance(base, type) and issubclass(base, Optimizer) and base is not Optimizer
}
NAMES = list(BASES)


def class_named(name: str) -> type[Optimizer]:
    """The class of a name such as "OrthoAdamW", always the same; AttributeError for an unknown name."""
    if name not in BASES:
        raise AttributeError(
            f"module 'orthograd.optim' has no attribute {name!r}: expected one of {', '.join(BASES)}. For an optimizer "
            f"of another package, use orthograd.OrthoGrad with base_optimizer_cls='package.Class'."
        )
    return _made(name)


@cache
def _made(name: str) -> type[Optimizer]:
    base = BASES[name]

    # No own step method: one that called super().step() would run the user's hooks twice.
    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        options = taken_from(kwargs)
        base.__init__(self, *args, **kwargs)
        Attachment(self, Partition(options))

    __init__.__signature__ = signature_of(base)  # type: ignore[attr-defined]
    __init__.__doc__ = base.__init__.__doc__
    body: dict[str, Any] = {
        "__init__": __init__,
        "__module__": "orthograd.optim",
        "__doc__": f"`torch.optim.{base.__name__}` with ⊥Grad steps. {', '.join(OWN)}: see `orthograd.attach`.",
        "made_by": (base,),
    }
    metaclass: Any = type(base)
    return cast(type[Optimizer], metaclass(name, (base,), body))


OWN = [field.name for field in fields(Options)]


def taken_from(keywords: dict[str, Any]) -> Options:
    """The options of ⊥Grad among the keywords of a constructor, removed from these."""
    own = {name: keywords.pop(name) for name in (*OWN, "grad_renormalization") if name in keywords}
    return Options(**without_published_names(own, stacklevel=3))


def signature_of(base: type[Optimizer], *more: inspect.Parameter) -> inspect.Signature:
    """The signature of a base class's constructor, with the options of ⊥Grad and others as further keywords."""
    signature = inspect.signature(base.__init__)
    keywords = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(Options)
    ]
    return signature.replace(parameters=[*signature.parameters.values(), *keywords, *more])
