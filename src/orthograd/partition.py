"""Which parameters ⊥Grad acts on, and which of them count together as one vector."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NoReturn, cast

from torch import Tensor
from torch.nn.parameter import is_lazy

from .options import Options

Where = Callable[[str, Tensor], bool]
"""A predicate on the name and the parameter: whether ⊥Grad acts on it."""
Segments = list[list[Tensor]]
"""Parameters; the inner lists are projected as one vector each."""


class NameUsedError(Exception):
    """Raised by the name of a parameter that nobody named, when a predicate uses it."""


class UnknownName:
    """Stands for the name of a parameter that nobody named: a predicate that uses it gets no wrong answer."""

    def __repr__(self) -> str:
        return "<unknown name>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python itself looks for these
        raise NameUsedError

    def _refuse(self, *_: Any) -> NoReturn:
        raise NameUsedError

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = _refuse
    __str__ = __format__ = __fspath__ = __contains__ = __getitem__ = __iter__ = __len__ = __add__ = __radd__ = _refuse


UNKNOWN = cast(str, UnknownName())


class Partition:
    """The parameters of param groups by their options. Follows the groups as they change."""

    def __init__(self, options: Options, where: Where | None = None, named: Iterable[tuple[str, Tensor]] = ()):
        self.options, self.where = options, _checked(where)
        # With the parameters themselves, as an id alone may come to be another's; torch swaps none that has a weakref.
        self._named = {id(parameter): (name, parameter) for name, parameter in named}
        self._members: list[Tensor] = []
        self.forget()

    def forget(self) -> None:
        """Ask for every parameter anew at the next call of `segments`."""
        self._signature: Any = None
        self._segments: dict[Options, Segments] = {}

    def segments(self, groups: Iterable[dict[str, Any]]) -> dict[Options, Segments]:
        """What to project, afresh only where a group or one of its parameters changed."""
        groups = list(groups)
        members = [parameter for group in groups for parameter in group["params"]]
        # The type of a lazy parameter changes when it gets its shape.
        signature = (
            [(len(group["params"]), repr(group.get("orthogonal"))) for group in groups],
            [(id(parameter), parameter.requires_grad, type(parameter)) for parameter in members],
        )
        if signature != self._signature:
            self._segments = self._divided(groups)
            for replaced in {id(parameter) for parameter in self._members} - {id(parameter) for parameter in members}:
                self._named.pop(replaced, None)
            self._signature, self._members = signature, members  # kept alive, for an id is good no longer
        return self._segments

    def names(self, groups: Iterable[dict[str, Any]]) -> list[str]:
        """The name of each parameter, `UNKNOWN` where nobody named it."""
        return [name for group in groups for name in self._names_in(group)]

    def _names_in(self, group: dict[str, Any]) -> list[str]:
        return group.get("param_names") or [self._named.get(id(p), (UNKNOWN,))[0] for p in group["params"]]

    def _divided(self, groups: list[dict[str, Any]]) -> dict[Options, Segments]:
        divided: dict[Options, dict[Hashable, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        for number, group in enumerate(groups):
            options = self.options.for_group(group)
            if options is None:
                continue
            for name, parameter in zip(self._names_in(group), group["params"], strict=True):
                if self._is_chosen(name, parameter, options):
                    _refuse_flat(parameter)
                    vector = {"group": number, "model": "model"}.get(options.granularity, id(parameter))
                    divided[options][vector].append(parameter)
        return {options: list(vectors.values()) for options, vectors in divided.items()}

    def _is_chosen(self, name: str, parameter: Tensor, options: Options) -> bool:
        if is_lazy(parameter) or not self._is_wanted(name, parameter):
            return False
        if options.granularity == "row":
            # A bias has one number per neuron: no row to be orthogonal to.
            return parameter.ndim > 1 and (options.scalars or parameter.numel() > len(parameter))
        return options.scalars or parameter.numel() != 1

    def _is_wanted(self, name: str, parameter: Tensor) -> bool:
        try:
            return self.where is None or bool(self.where(name, parameter))
        except (NameUsedError, TypeError) as error:  # re and others refuse what is no string with a TypeError
            if name is not UNKNOWN:
                raise
            raise ValueError(
                f"where uses the name of the parameter of shape {tuple(parameter.shape)}, which is not known. Build "
                f"the optimizer from model.named_parameters(), or pass named_parameters=model.named_parameters(), of "
                f"the same model, to attach. (where raised {error!r})"
            ) from error


def _checked(where: Where | None) -> Where | None:
    if where is None:
        return None
    try:
        inspect.signature(where).bind("name", None)
    except ValueError:  # some functions written in C have no signature
        pass
    except TypeError as error:
        raise TypeError(f"expected where to be a function of (name, parameter), got {where!r}") from error
    return where


def _refuse_flat(parameter: Tensor) -> None:
    """Raise for what FSDP1 makes of parameters: a layer is then no tensor, and a shard no vector of its own."""
    if getattr(parameter, "_fsdp_flattened", False):
        raise ValueError(
            f"FullyShardedDataParallel (FSDP1) stores layers as pieces of flat parameters, and ⊥Grad needs each layer: "
            f"got one of shape {tuple(parameter.shape)}. Shard the model by torch.distributed.fsdp.fully_shard (FSDP2)."
        )
