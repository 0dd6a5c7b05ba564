"""⊥Grad for every optimizer that is made inside a block, for trainers that make their own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import wraps
from typing import Any

from torch.optim import Optimizer

from ..attachment import Attachment, attachment_of
from ..optimizer import _innermost, attach
from ..options import Options, without_published_names
from ..partition import Where, checked
from ..update import is_measuring


class Scope:
    """One ``with everywhere():`` block: its options, the handles it has made, and the constructors that run in it."""

    def __init__(self, where: Where | None, options: dict[str, Any]):
        self.where, self.options = where, options
        self.handles: list[Attachment] = []
        self._depth = 0
        self._made: list[Optimizer] = []

    def construct(self, optimizer: Optimizer, initialize: Callable[[], None]) -> None:
        """Run a constructor. ⊥Grad is attached when the outermost one has finished, to the optimizer that steps."""
        # A constructor calls that of its base class, and that of SAM makes an optimizer of its own.
        self._depth += 1
        try:
            initialize()
            if all(optimizer is not each for each in self._made):
                self._made.append(optimizer)
        finally:
            self._depth -= 1
            made, self._made = (self._made, []) if self._depth == 0 else ([], self._made)
        for each in reversed(made):  # what was made last contains the others
            stepping = _innermost(each)
            # ZeroRedundancyOptimizer projects all parameters, and then steps its part with another optimizer.
            is_inside = any(getattr(o, "optim", None) is stepping and _innermost(o) is o for o in made)
            if attachment_of(stepping) is None and not is_inside:
                self.handles.append(attach(stepping, where=self.where, **self.options))


_scope: ContextVar[Scope | None] = ContextVar("orthograd_scope", default=None)


@contextmanager
def everywhere(*, where: Where | None = None, **options: Any) -> Iterator[list[Attachment]]:
    """Attach ⊥Grad to every optimizer that this thread makes inside the block, of whatever class.

    For trainers that choose their optimizer from a fixed list. The optimizers keep ⊥Grad after the block. One that has
    ⊥Grad already, such as ``orthograd.optim.OrthoAdamW``, keeps its own options. Of two nested blocks the inner counts.

    Args:
        where: as in `attach`. Names are known only for optimizers built from ``named_parameters()``.
        **options: the other options of `attach`, but for ``named_parameters``.

    Yields:
        The handles of the optimizers made so far.

    Raises:
        TypeError: for a wrong or unknown option; inside the block, where `attach` would raise it.
        ValueError: likewise.

    >>> import torch
    >>> with everywhere(renormalize=False) as handles:
    ...     optimizer = torch.optim.AdamW(torch.nn.Linear(3, 2).parameters())
    >>> handles[0].optimizer is optimizer
    True
    """
    options = without_published_names(options, stacklevel=3)
    if unknown := sorted(set(options).difference(field.name for field in fields(Options))):
        raise TypeError(f"everywhere() got an unexpected keyword argument {unknown[0]!r}")
    Options(**options)  # a wrong option raises here, not in the trainer
    scope = Scope(checked(where), options)
    token = _scope.set(scope)
    _constructors.patch()
    try:
        yield scope.handles
    finally:
        _constructors.restore()
        _scope.reset(token)
    if not scope.handles:
        warnings.warn(
            "⊥Grad acts on nothing: no optimizer was made inside everywhere(), by this thread and without ⊥Grad. Put "
            "the line that makes the optimizer into the block.",
            stacklevel=3,
        )


class Constructors:
    """The ``__init__`` of every optimizer class, patched while at least one block is open in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._originals: dict[type, Any] = {}

    def patch(self) -> None:
        """Patch them, unless another open block has."""
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                for each in _with_subclasses(Optimizer):
                    self._wrap(each)
                # Classes that are imported or defined inside the block.
                # Not a bound method: in Python 3.10, classmethod would then not pass the class.
                Optimizer.__init_subclass__ = classmethod(lambda new, **kw: self._on_new_class(new, **kw))  # type: ignore[assignment, arg-type]

    def restore(self) -> None:
        """Restore them, unless another block is still open."""
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                del Optimizer.__init_subclass__
                for each, original in self._originals.items():
                    each.__init__ = original  # type: ignore[misc]
                self._originals.clear()

    def _on_new_class(self, new: Any, **kwargs: Any) -> None:
        super(Optimizer, new).__init_subclass__(**kwargs)  # type: ignore[misc]
        self._wrap(new)

    def _wrap(self, optimizer_class: type) -> None:
        if "__init__" not in vars(optimizer_class) or optimizer_class in self._originals:
            return
        self._originals[optimizer_class] = original = vars(optimizer_class)["__init__"]

        @wraps(original)
        def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
            scope = _scope.get()  # None in other threads
            if scope is None or is_measuring.get():
                original(self, *args, **kwargs)
            else:
                scope.construct(self, lambda: original(self, *args, **kwargs))

        optimizer_class.__init__ = __init__  # type: ignore[misc]


_constructors = Constructors()


def _with_subclasses(base: Any) -> Iterator[type]:
    yield base
    for each in base.__subclasses__():
        yield from _with_subclasses(each)
