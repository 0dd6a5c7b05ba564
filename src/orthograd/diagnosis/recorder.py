"""`Recorder`: measures gradients, weights and updates during training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..engine.dense import CHUNK, pieces
from ..optimizer import _innermost
from .action import real_pair, refuse_shards
from .collapse import CollapseCounter, Count, shares
from .history import QUANTITIES, History, Snapshot

__all__ = ["QUANTITIES", "Recorder"]

Call = tuple[tuple[Any, ...], dict[str, Any]]
# Elements per piece on a GPU: large, because each piece costs a few launches.
GPU_CHUNK = 1 << 22


class Recorder:
    """Measures gradients, weights and updates at every n-th step of an optimizer, with or without ⊥Grad on it.

    Args:
        optimizer: the optimizer to measure. Its next step is number 0, and is recorded.
        every: steps from one record to the next. The steps between cost a comparison of two integers.
        named_parameters: ``model.named_parameters()``. Without it, names come from the optimizer if it has them.
        outputs: the module that returns the logits, often the model: `collapse` then counts samples without gradient.

    Raises:
        TypeError: if ``optimizer`` is not an optimizer, ``named_parameters`` are not pairs (name, parameter), or
            ``outputs`` is not a module.
        ValueError: if ``every`` is below 1, two parameters share a name, or parameters are sharded over ranks.

    For each parameter a record holds the angle between weight and gradient, as the backward pass left it, and between
    weight and update, weight decay included. Measurements stay on the device in float64 until they are read, so no step
    waits for them. During a recorded step there is one copy of the weights. If a closure is called several times, the
    first gradient counts. Steps that a `GradScaler` skips are not counted. Steps replayed from a CUDA graph run no
    hooks, and are not recorded.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> recorder = Recorder(optimizer, every=10, named_parameters=model.named_parameters())
    >>> for _ in range(11):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 3)).square().sum().backward()
    ...     optimizer.step()
    >>> recorder.steps, sorted(recorder.history())
    ([0, 10], ['bias', 'weight'])
    >>> recorder.remove()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        every: int = 100,
        named_parameters: Iterable[tuple[str, Tensor]] | None = None,
        outputs: torch.nn.Module | None = None,
    ):
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"expected every to be a number of steps, at least 1, got {every!r}")
        self.optimizer, self.every = _innermost(optimizer), every
        self._names = _names_of(named_parameters)
        self._kept: dict[int, Tensor] = {}  # keeps parameters alive, so that their ids stay unique
        self._step = -1
        self._before: list[Tensor] | None = None
        self._gradients: list[Tensor | None] | None = None
        self._snapshots: list[Snapshot] = []
        self._counts: list[dict[str, Count]] = []
        for named in self._named():
            refuse_shards(*named)
        self._counter = CollapseCounter(outputs, self._is_recording)
        self._hooks = [
            self.optimizer.register_step_pre_hook(torch.compiler.disable(self._before_step)),
            self.optimizer.register_step_post_hook(torch.compiler.disable(self._after_step)),
        ]
        # Before all other hooks: ⊥Grad and others change the gradient.
        _hooks_of(self.optimizer, "pre").move_to_end(self._hooks[0].id, last=False)

    def remove(self) -> None:
        """Stop recording. Records stay. Calling it twice is allowed."""
        while self._hooks:
            self._hooks.pop().remove()
        self._counter.remove()
        self._before = self._gradients = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def steps(self) -> list[int]:
        """The numbers of the recorded steps."""
        return [snapshot.step for snapshot in self._snapshots]

    def history(self) -> dict[str, dict[str, list[float | None]]]:
        """The values at `steps`, by parameter and quantity (see `QUANTITIES`); None where there is none."""
        return self._history().parameters

    def losses(self, losses: Tensor) -> None:
        """Count samples with a loss of exactly zero: call it with the loss of each sample before a step.

        It costs nothing in steps that are not recorded.
        """
        self._counter.count_losses(losses)

    def collapse(self) -> dict[str, list[float | None]]:
        """Shares of samples at `steps` that show softmax collapse; None where nothing was counted.

        ``zero_gradient``: the gradient with respect to the logits is exactly zero, if the recorder has ``outputs``.
        ``zero_loss``: the loss is exactly zero, if `losses` was called.
        """
        return shares(self._counts)

    def as_dict(self) -> dict[str, Any]:
        """All records as plain data for JSON."""
        whole = {"every": self.every, "steps": self.steps, "parameters": self.history()}
        return {**whole, "collapse": self.collapse()} if any(self._counts) else whole

    def table(self) -> str:
        """A table of the last record and the change since the first, sorted by what ⊥Grad would remove."""
        return self._history().table()

    def figure(self, path: str | Path, quantity: str = "radial", *, title: str = "") -> None:
        """Draw one of `QUANTITIES` for every parameter over the steps, as PNG, PDF or SVG. Needs matplotlib."""
        try:
            from ..figures.heatmap import heatmap_figure
            from ..figures.style import save_figure
        except ImportError as error:
            message = f"a figure needs {error.name}: pip install 'orthograd[lab]' (from a clone: pip install '.[lab]')"
            raise ImportError(message, name=error.name) from None

        history = self._history()
        save_figure(heatmap_figure(history.steps, history.drawn(quantity), quantity=quantity, title=title), path)

    def _history(self) -> History:
        if not self._snapshots:
            raise ValueError("expected at least one recorded step, got none: call optimizer.step() first")
        return History(self._snapshots)

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        self._step += 1
        self._before = self._gradients = None
        if self._step % self.every:
            self._counter.take()  # of a step that was skipped before it
            return None
        # After all other hooks, those attached later included: project="update" acts after the step.
        _hooks_of(optimizer, "post").move_to_end(self._hooks[1].id)
        self._before = [_copy(name, parameter) for name, parameter in self._named()]
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if not callable(closure):
            self._measure_gradients()
            return None
        measuring = self._measuring(closure)
        return ((args[0], measuring, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": measuring})

    def _measuring(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Wrap a closure so that gradients are measured after its first call, at the weights before the step."""

        def measuring_closure() -> Any:
            loss = closure()
            if self._gradients is None:
                self._measure_gradients()
            return loss

        return measuring_closure

    @torch.no_grad()
    def _measure_gradients(self) -> None:
        scale = getattr(self.optimizer, "grad_scale", None)  # a fused optimizer divides by it in its step
        self._gradients = [None if p.grad is None else _unscaled(p.grad, p, scale) for _, p in self._named()]

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._before is None or self._gradients is None:
            return
        named, rows = self._named(), []
        for (_, parameter), before, gradient in zip(named, self._before, self._gradients, strict=False):
            update = inner_products(parameter, before, minus_weight=True)
            rows.append(torch.cat([update, torch.full_like(update, torch.nan) if gradient is None else gradient]))
        names = [name for name, _ in named[: len(rows)]]
        self._snapshots.append(Snapshot.of(self._step, names, rows))
        self._counts.append(self._counter.take())
        self._before = self._gradients = None

    def _is_recording(self) -> bool:
        """True in a recorded step, as a closure runs in it, and before one."""
        return bool(self._hooks) and (self._before is not None or (self._step + 1) % self.every == 0)

    def _named(self) -> list[tuple[str, Tensor]]:
        """All parameters of all groups, with names that do not change."""
        named = []
        for number, group in enumerate(self.optimizer.param_groups):
            names = group.get("param_names") or [None] * len(group["params"])
            for place, (name, parameter) in enumerate(zip(names, group["params"], strict=True)):
                known = self._names.setdefault(id(parameter), name or f"group {number}, parameter {place}")
                self._kept.setdefault(id(parameter), parameter)
                named.append((known, parameter))
        return named


def _names_of(named_parameters: Any) -> dict[int, str]:
    pairs = [] if named_parameters is None else named_parameters
    is_listed = isinstance(pairs, Iterable) and not isinstance(pairs, (Mapping, torch.nn.Module))
    pairs = list(pairs) if is_listed else [pairs]
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(
            "expected named_parameters=model.named_parameters(), got "
            f"{type(named_parameters).__name__} without pairs of a name and a parameter"
        )
    owners: dict[str, Tensor] = {}
    for name, parameter in pairs:
        if owners.setdefault(name, parameter) is not parameter:
            raise ValueError(
                f"expected a different name for each parameter, got {name!r} for two; for two networks pass "
                'named_parameters(prefix="…")'
            )
    return {id(parameter): name for name, parameter in pairs}


def _hooks_of(optimizer: Optimizer, when: str) -> OrderedDict[int, Any]:
    hooks: OrderedDict[int, Any] = getattr(optimizer, f"_optimizer_step_{when}_hooks")
    return hooks


def _copy(name: str, parameter: Tensor) -> Tensor:
    refuse_shards(name, parameter)  # a param group may have been added
    return parameter.detach().clone()


def _unscaled(gradient: Tensor, parameter: Tensor, scale: Tensor | None) -> Tensor:
    """The inner products of weight and gradient, with the scale of a `GradScaler` divided out."""
    sums = inner_products(gradient, parameter)
    if scale is None:
        return sums
    factor = scale.to(sums.device, sums.dtype)
    return sums / torch.stack([torch.ones_like(factor), factor, factor, factor * factor])


def inner_products(vector: Tensor, weight: Tensor, *, minus_weight: bool = False) -> Tensor:
    """(‖w‖², ⟨w, v⟩, ⟨v, w⟩, ‖v‖²); with ``minus_weight``, v − w in place of v, exact if v is w after a small step.

    >>> inner_products(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    tensor([ 4.,  8.,  8., 25.], dtype=torch.float64)
    """
    v, w = real_pair(vector, weight)
    wide = torch.float32 if w.device.type == "mps" else torch.float64
    sums = []
    for x, y in pieces(v, w, GPU_CHUNK if w.is_cuda else CHUNK):
        both = torch.stack([y, x]).to(wide).reshape(2, -1)
        if minus_weight:
            both[1].sub_(both[0])
        sums.append((both @ both.T).flatten())  # one product instead of three: for small tensors, calls dominate
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)
