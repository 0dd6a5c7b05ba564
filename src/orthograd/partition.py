"""Selects the parameters that ⊥Grad acts on, and groups those that are projected as one vector."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from operator import is_
from typing import Any, NoReturn, cast

from torch import Tensor
from torch.nn.parameter import is_lazy

from .options import Options

Where = Callable[[str, Tensor], bool]
"""Predicate of (name, parameter): True for parameters that ⊥Grad acts on."""
Segments = list[list[Tensor]]
"""Lists of parameters, each projected as one vector."""


class NameUsedError(Exception):
    """Raised when a predicate uses the name of a parameter without a name."""


class UnknownName:
    """Placeholder for an unknown parameter name. Any use of it raises `NameUsedError`."""

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
    """The parameters of param groups, grouped by options. Follows changes of the groups."""

    def __init__(self, options: Options, where: Where | None = None, named: Iterable[tuple[str, Tensor]] = ()):
        self.options, self.where = options, checked(where)
        # Parameters are kept, since an id can be reused. No weakref: torch does not swap tensors that have one.
        self._named = {id(parameter): (name, parameter) for name, parameter in named}
        self._members: list[Tensor] = []
        self.forget()

    def forget(self) -> None:
        """Drop the cache: the next call of `segments` looks at every parameter again."""
        self._signature: Any = None
        self._choice_can_change = True  # for the same parameters: one is lazy, or `where` may look at anything
        self._small: list[Tensor] = []
        self._segments: dict[Options, Segments] = {}
        self._choices: dict[Hashable, Options | None] = {}

    def segments(self, groups: Iterable[dict[str, Any]]) -> dict[Options, Segments]:
        """The parameters to project, recomputed only if a group or one of its parameters changed."""
        groups = list(groups)
        members = list(chain.from_iterable(group["params"] for group in groups))
        is_same = len(members) == len(self._members) and all(map(is_, members, self._members))
        if not is_same or self._signed(groups, members) != self._signature:
            self._segments, self._choices = self._divided(groups), {}
            for replaced in {id(parameter) for parameter in self._members} - {id(parameter) for parameter in members}:
                self._named.pop(replaced, None)
            self._choice_can_change = self.where is not None or any(map(is_lazy, members))
            self._small = [p for p in members if not is_lazy(p) and p.numel() < 2]
            self._members = members  # kept alive, so that ids stay valid
            self._signature = self._signed(groups, members)
        return self._segments

    def _signed(self, groups: list[dict[str, Any]], members: list[Tensor]) -> Any:
        """What the segments depend on besides the parameters. Compared at every step, so it must be cheap."""
        options = [(len(group["params"]), repr(group.get("orthogonal"))) for group in groups]
        kinds = [(type(p), p.requires_grad) for p in members] if self._choice_can_change else None
        sizes = list(map(Tensor.numel, self._small))  # such a tensor may grow
        return options, kinds, sizes

    def choice(self, parameter: Tensor, groups: list[dict[str, Any]]) -> Options | None:
        """The options of one parameter; None if ⊥Grad leaves it alone. Cheaper than `segments` for many parameters."""
        choices = [repr(group.get("orthogonal")) for group in groups]
        key = (id(parameter), type(parameter), parameter.requires_grad, *choices)
        if key not in self._choices:
            divided = self.segments(groups).items()  # keeps the parameters alive, so that ids stay valid
            found = (options for options, each in divided if any(p is parameter for segment in each for p in segment))
            self._choices[key] = next(found, None)
        return self._choices[key]

    def names(self, groups: Iterable[dict[str, Any]]) -> list[str]:
        """The name of each parameter; `UNKNOWN` if it has none."""
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
            # Rows of a 1-D parameter have one element, and so no orthogonal direction.
            return parameter.ndim > 1 and (options.scalars or parameter.numel() > len(parameter))
        return options.scalars or parameter.numel() != 1

    def _is_wanted(self, name: str, parameter: Tensor) -> bool:
        try:
            return self.where is None or bool(self.where(name, parameter))
        except (NameUsedError, TypeError) as error:  # re and others raise TypeError for what is not a string
            if name is not UNKNOWN:
                raise
            raise ValueError(
                f"where uses the name of the parameter of shape {tuple(parameter.shape)}, which is not known. Build "
                f"the optimizer from model.named_parameters(), or pass named_parameters=model.named_parameters() of "
                f"the same model to attach. (where raised {error!r})"
            ) from error


def checked(where: Where | None) -> Where | None:
    """The predicate itself. Raises TypeError if it is not a function of (name, parameter)."""
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
    """Raise for FSDP1's flat parameters: a layer is then not a tensor."""
    if getattr(parameter, "_fsdp_flattened", False):
        raise ValueError(
            f"expected a parameter for each layer, got a flat parameter of FullyShardedDataParallel (FSDP1) of shape "
            f"{tuple(parameter.shape)}. Shard the model with torch.distributed.fsdp.fully_shard (FSDP2)."
        )
