"""Optimizer classes with ⊥Grad, importable by a dotted path such as ``orthograd.optim.OrthoAdamW``.

There is one for each class of `torch.optim`. It takes the arguments of its base, and the options of `orthograd.attach`
as keywords.

>>> import torch
>>> from orthograd.optim import OrthoAdamW
>>> optimizer = OrthoAdamW(torch.nn.Linear(3, 2).parameters(), lr=1e-3, granularity="row")
>>> isinstance(optimizer, torch.optim.AdamW)
True
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, cast

import torch
from torch.optim import Optimizer

from .attachment import Attachment
from .options import Options
from .partition import Partition

BASES = {
    f"Ortho{name}": base
    for name, base in sorted(vars(torch.optim).items())
    if isinstance(base, type) and issubclass(base, Optimizer) and base is not Optimizer
}
__all__ = list(BASES)


def __getattr__(name: str) -> type[Optimizer]:
    if name not in BASES:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(BASES)}. For an optimizer of "
            f"another package, use orthograd.OrthoGrad with base_optimizer_cls='package.Class'."
        )
    globals()[name] = made = _made(name, BASES[name])
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *BASES})


def _made(name: str, base: type[Optimizer]) -> type[Optimizer]:
    own = [field.name for field in fields(Options)]

    # No own step method: one that called super().step() would run the user's hooks twice.
    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        options = Options(**{key: kwargs.pop(key) for key in own if key in kwargs})
        base.__init__(self, *args, **kwargs)
        Attachment(self, Partition(options))

    __init__.__signature__ = _signature(base)  # type: ignore[attr-defined]
    __init__.__doc__ = base.__init__.__doc__
    body: dict[str, Any] = {
        "__init__": __init__,
        "__module__": __name__,
        "__doc__": f"`torch.optim.{base.__name__}` with ⊥Grad steps. {', '.join(own)}: see `orthograd.attach`.",
        "made_by": (base,),
    }
    metaclass: Any = type(base)
    return cast(type[Optimizer], metaclass(name, (base,), body))


def _signature(base: type[Optimizer]) -> inspect.Signature:
    """The signature of a base class's constructor, with the options of ⊥Grad as further keywords."""
    signature = inspect.signature(base.__init__)
    keywords = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(Options)
    ]
    return signature.replace(parameters=[*signature.parameters.values(), *keywords])
