"""⊥Grad on an optimizer that stays the user's own object: only hooks are added to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from .engine import Projector
from .options import Options
from .partition import Partition, Segments, Where, project_gradients_
from .update import Updates

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Attachment:
    """The handle that `orthograd.attach` returns. ``remove()``, or leaving its ``with`` block, ends ⊥Grad."""

    def __init__(self, optimizer: Optimizer, partition: Partition):
        self.optimizer, self.partition = optimizer, partition
        self.partition.segments(optimizer.param_groups)  # an error in a group's options shows now, not in a step
        self._projectors: dict[Options, Projector] = {}
        self._updates: dict[Options, Updates] = defaultdict(Updates)
        self._stepping: dict[Options, Segments] = {}
        # torch.compile leaves the hooks alone and compiles the base step: its kernels could not do better than ours.
        before, after = torch.compiler.disable(self._before_step), torch.compiler.disable(self._after_step)
        before.attachment = self
        self._hooks = [
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
            optimizer.register_load_state_dict_pre_hook(self._keep_group_options),
        ]
        # copy.deepcopy and pickle drop hooks. They ask the object how to copy it, and are told here.
        optimizer.__reduce_ex__ = self._reduce  # type: ignore[method-assign, assignment]

    @property
    def is_attached(self) -> bool:
        """Whether steps of the optimizer are ⊥Grad steps by this handle."""
        return bool(self._hooks)

    def remove(self) -> None:
        """Detach: from here on the optimizer steps as it did before. Its state stays. Calling twice is fine."""
        if self._hooks:
            vars(self.optimizer).pop("__reduce_ex__", None)
        while self._hooks:
            self._hooks.pop().remove()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "attached to" if self.is_attached else "removed from"
        return f"<⊥Grad {state} {type(self.optimizer).__name__}: {self.partition.options}>"

    def project_gradients_(self) -> None:
        """Project the gradients that the parameters hold now, as the next step would."""
        self._project_gradients_(self.partition.segments(self.optimizer.param_groups))

    def _project_gradients_(self, divided: dict[Options, Segments]) -> None:
        for options, segments in divided.items():
            if options.project == "gradient":
                project_gradients_(segments, options, self._projector(options))

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        self._stepping = self.partition.segments(optimizer.param_groups)
        for options, segments in self._stepping.items():
            if options.project == "update":
                self._updates[options].remember(segments)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if not callable(closure):
            self._project_gradients_(self._stepping)
            return None
        wrapped = self._projecting(closure)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for options, segments in self._stepping.items():
            if options.project == "update":
                self._updates[options].project_(optimizer, options, segments, self._projector(options))

    def _projecting(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure computes gradients anew, as often as the optimizer likes: project them each time."""

        def projecting_closure() -> Any:
            loss = closure()
            self.project_gradients_()
            return loss

        return projecting_closure

    def _projector(self, options: Options) -> Projector:
        if options not in self._projectors:
            self._projectors[options] = projector_for(options)
        return self._projectors[options]

    def _keep_group_options(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any] | None:
        """A checkpoint from before ⊥Grad knows nothing of "orthogonal"; torch would drop it from the groups."""
        saved = state_dict["param_groups"]
        if len(saved) != len(optimizer.param_groups):
            return None  # torch has a clear error for that
        kept = [{k: v for k, v in group.items() if k == "orthogonal"} for group in optimizer.param_groups]
        return {**state_dict, "param_groups": [{**now, **then} for now, then in zip(kept, saved, strict=True)]}

    def _reduce(self, protocol: int) -> tuple[Any, ...]:
        names = [self.partition.names.get(id(p), "") for group in self.optimizer.param_groups for p in group["params"]]
        choice = self.partition.options, self.partition.where, names
        return _restored, (type(self.optimizer), self.optimizer.__getstate__(), *choice)


def projector_for(options: Options) -> Projector:
    """The engine that serves these options."""
    return Projector(renormalize=options.renormalize, rows=options.granularity == "row", engine=options.engine)


def attachment_of(optimizer: Optimizer) -> Attachment | None:
    """The handle that is at work on an optimizer, if any."""
    handles = (getattr(hook, "attachment", None) for hook in optimizer._optimizer_step_pre_hooks.values())
    return next((handle for handle in handles if isinstance(handle, Attachment)), None)


def _restored(
    kind: type[Optimizer], state: dict[str, Any], options: Options, where: Where | None, names: list[str]
) -> Optimizer:
    """A copy or an unpickled optimizer, with ⊥Grad attached as it was."""
    optimizer = kind.__new__(kind)
    optimizer.__setstate__(state)
    if attachment_of(optimizer) is None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        partition = Partition(options, where, dict(zip(map(id, parameters), names, strict=True)))
        Attachment(optimizer, partition)
    return optimizer
