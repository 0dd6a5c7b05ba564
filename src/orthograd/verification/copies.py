"""Evidence that ⊥Grad acts: steps on copies of an optimizer, with it, without it, and projected beforehand."""

from __future__ import annotations

import copy
import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from ..engine.sharded import local, mesh_of
from ..options import Options
from ..partition import UNKNOWN, Partition
from ..projection import as_real


class Row(NamedTuple):
    """One parameter: cosine of its gradient, and of what ⊥Grad made of it, with the weight; why it is left alone.

    With ``project="update"``, ``cosine_with`` is that of the update without decoupled weight decay.
    """

    name: str
    shape: tuple[int, ...]
    is_projected: bool
    cosine_without: float
    cosine_with: float
    reason: str


class Verification(tuple[Row, ...]):
    """Result of `orthograd.Attachment.verify`: a row for each parameter. Prints as a table."""

    @property
    def is_complete(self) -> bool:
        """True if every parameter that ⊥Grad should act on is seen to be projected, and there is one."""
        return any(row.is_projected for row in self) and not any(row.reason.startswith("NOT") for row in self)

    def __str__(self) -> str:
        count = sum(row.is_projected for row in self)
        head = f"⊥Grad projects {count} of {len(self)} parameters (three steps on a copy)."
        width = max((len(row.name) for row in self), default=0)
        rows = [
            f"  {row.name:<{width}}  {row.shape!s:<16} |cosine| {row.cosine_without:.1e} → {row.cosine_with:.1e}  "
            f"{row.reason or 'projected'}"
            for row in self
        ]
        return "\n".join([head, *rows])

    __repr__ = __str__


STEPS = 3  # in their first step some optimizers only fill their state
IGNORED = "NOT projected: the step does not use .grad"
RADIAL = "NOT projected: a radial part is left"
TOO_SMALL = "NOT known: its steps are lost in rounding; verify with a larger learning rate"
REPLACED = "NOT known: step() was replaced on this optimizer, and may not run its hooks"


class Trial(NamedTuple):
    """Weights after steps on a copy, and the largest absolute cosine of each parameter with what was projected.

    ``rounding`` is how much of a cosine may come from the rounding of weights.
    """

    weights: list[Tensor]
    cosines: list[float]
    rounding: list[float]


class Trials(NamedTuple):
    """The same steps with ⊥Grad attached, without it, and with gradients projected beforehand."""

    attached: Trial
    plain: Trial
    by_hand: Trial


class Verifier:
    """Takes the same steps on copies of an optimizer: with ⊥Grad, without, and with gradients projected beforehand."""

    def __init__(self, optimizer: Optimizer, partition: Partition, attach: Callable[[Optimizer, Partition], Any]):
        self.optimizer, self.partition, self.attach = optimizer, partition, attach
        self.parameters = members(optimizer)
        step = inspect.signature(type(optimizer).step).parameters.get("closure")
        self._needs_closure = step is not None and step.default is inspect.Parameter.empty
        # Schedulers wrap the step of the class, and say so.
        self._is_replaced = inspect.unwrap(optimizer.step) is not inspect.unwrap(type(optimizer).step)

    def verified(self) -> Verification:
        """A row for each parameter."""
        self._refuse_uncopied()
        with same_random_numbers() as rewind, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what attach and the first steps have said, or will say
            attached = self._attached_trial(rewind)
            rewind()
            plain = self._trial(*self._copied(), is_projected=False)
            rewind()
            by_hand = self._trial(*self._copied(), is_projected=True)
        trials = Trials(attached, plain, by_hand)
        skipped = enumerate(zip(self.parameters, self._names(), self._skipped(), strict=True))
        return Verification(self._row(index, *each, trials) for index, each in skipped)

    def _refuse_uncopied(self) -> None:
        """Raise for parameters that have no values to copy, or only a part of them here."""
        for name, parameter in zip(self._names(), self.parameters, strict=True):
            if is_lazy(parameter) or parameter.is_meta:
                raise ValueError(f"verify() needs the values of {name}: initialize it first, as by a forward pass")
            if mesh_of(parameter) is not None:
                raise TypeError(f"verify() steps whole parameters, and {name} is sharded: verify before you shard")

    def _row(self, index: int, parameter: Tensor, name: str, skipped: str | None, trials: Trials) -> Row:
        is_update = skipped is None and self._options(parameter).project == "update"
        projected = trials.attached if is_update else trials.by_hand
        cosines = trials.plain.cosines[index], projected.cosines[index]
        reason = self._complaint(index, parameter, cosines[1], is_update, trials) if skipped is None else skipped
        reason = reason or (REPLACED if self._is_replaced else "")
        return Row(name, tuple(parameter.shape), not reason, *cosines, reason)

    def _complaint(self, index: int, parameter: Tensor, cosine: float, is_update: bool, trials: Trials) -> str:
        """Why a parameter that should be projected is not; empty if it is."""
        if not parameter.detach().any():
            return "zero: it has no direction yet"
        rounding = trials.attached.rounding[index] if is_update else 0.0
        if cosine > max(1e-5, 2 * torch.finfo(parameter.dtype).eps, rounding):
            return RADIAL
        if is_update:
            return TOO_SMALL if rounding > 0.1 else ""
        with_orthograd, plain, by_hand = (trial.weights for trial in trials)
        change, to_hand, to_plain = (
            float((one[index] - other).norm())
            for one, other in (
                (by_hand, parameter.detach()),
                (by_hand, with_orthograd[index]),
                (plain, with_orthograd[index]),
            )
        )
        # A fused step rounds once where a gradient and its step are rounded each.
        rounding = STEPS * torch.finfo(parameter.dtype).eps * float(parameter.detach().norm())
        if to_hand > 1e-3 * change and (to_hand > rounding or to_plain < 0.1 * to_hand):
            return IGNORED
        # Some optimizers use the sign alone, which a projection need not change in a small tensor. It does in some.
        if change == 0 or not all(map(torch.equal, with_orthograd, plain)):
            return ""
        return TOO_SMALL if change <= rounding else IGNORED

    def _attached_trial(self, rewind: Callable[[], None]) -> Trial:
        twin, partition = self._copied()
        handle = self.attach(twin, partition)
        rewind()  # attaching may have drawn random numbers
        before = [p.detach().clone() for p in members(twin)]
        cosines, rounding = [0.0] * len(before), [0.0] * len(before)
        for gradients in self._gradients():
            before = [p.detach().clone() for p in members(twin)]
            shares = {id(p): 0.0 for p in members(twin)}
            for options, segments in partition.segments(twin.param_groups).items():
                if options.project == "update":
                    shares.update(handle._decay.shares(options, segments))
            self._step(twin, lambda gradients=gradients: set_gradients(members(twin), gradients))  # type: ignore[misc]
            updates = [
                p.detach() - w * (1 - shares[id(p)]) if p.requires_grad else torch.zeros_like(w)
                for p, w in zip(members(twin), before, strict=True)
            ]
            found = self._cosines(partition, twin, updates, before)
            cosines = [max(pair) for pair in zip(cosines, found, strict=True)]
            rounding = [max(*three) for three in zip(rounding, map(lost_in_rounding, updates, before), strict=True)]
        handle.remove()
        return Trial([p.detach().clone() for p in members(twin)], cosines, rounding)

    def _trial(self, twin: Optimizer, partition: Partition, *, is_projected: bool) -> Trial:
        handle = self.attach(twin, partition)
        handle.remove()  # it still projects when asked to
        cosines = [0.0] * len(self.parameters)
        for gradients in self._gradients():

            def prepare(gradients: list[Tensor | None] = gradients) -> None:
                nonlocal cosines
                set_gradients(members(twin), gradients)
                if is_projected:
                    handle.project_gradients_()
                grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in members(twin)]
                found = self._cosines(partition, twin, grads, members(twin))
                cosines = [max(pair) for pair in zip(cosines, found, strict=True)]

            self._step(twin, prepare)
        return Trial([p.detach().clone() for p in members(twin)], cosines, [0.0] * len(cosines))

    def _step(self, twin: Optimizer, prepare: Callable[[], None]) -> None:
        if not self._needs_closure:
            prepare()
        step: Any = type(twin).step  # not one that was set on the object: it may belong to the original

        def closure() -> Tensor:
            prepare()
            return torch.zeros(())

        try:
            step(twin, closure) if self._needs_closure else step(twin)
        except Exception as error:  # a third-party step can need anything
            raise RuntimeError(
                f"verify() could not take a step on a copy of this {type(twin).__name__}: {error!r}"
            ) from error

    def _gradients(self) -> Iterator[list[Tensor | None]]:
        """Gradients at about 45° to their weights, from a private generator."""
        generator = torch.Generator().manual_seed(0)
        for _ in range(STEPS):
            yield [gradient_for(p, generator) if p.requires_grad else None for p in self.parameters]

    def _copied(self) -> tuple[Optimizer, Partition]:
        twin = copied(self.optimizer)
        names = self.partition.names(self.optimizer.param_groups)
        named = [(name, p) for name, p in zip(names, members(twin), strict=True) if name is not UNKNOWN]
        return twin, Partition(self.partition.options, self.partition.where, named)

    def _cosines(
        self, partition: Partition, optimizer: Optimizer, tensors: list[Tensor], weights: list[Any]
    ) -> list[float]:
        """The largest |cosine| of each parameter's vector with its weight; zero for what is left alone."""
        places = {id(p): index for index, p in enumerate(members(optimizer))}
        found = [0.0] * len(places)
        for options, segments in partition.segments(optimizer.param_groups).items():
            for segment in segments:
                indices = [places[id(p)] for p in segment]
                value = largest_cosine([(tensors[i], weights[i].detach()) for i in indices], options)
                for index in indices:
                    found[index] = value
        return found

    def _options(self, parameter: Tensor) -> Options:
        divided = self.partition.segments(self.optimizer.param_groups)
        return next(o for o, segments in divided.items() for each in segments if any(p is parameter for p in each))

    def _names(self) -> list[str]:
        names = self.partition.names(self.optimizer.param_groups)
        return [str(index) if name is UNKNOWN else name for index, name in enumerate(names)]

    def _skipped(self) -> list[str | None]:
        """Why ⊥Grad leaves each parameter alone; None if it does not."""
        groups = self.optimizer.param_groups
        chosen = {id(p) for each in self.partition.segments(groups).values() for segment in each for p in segment}
        reasons: list[str | None] = []
        for group in groups:
            options = self.partition.options.for_group(group)
            for p in group["params"]:
                if not p.requires_grad:
                    reasons.append("frozen")
                elif id(p) in chosen:
                    reasons.append(None)
                elif options is None:
                    reasons.append('left alone: its group has "orthogonal": False')
                elif p.numel() < 2:
                    reasons.append("left alone: no orthogonal direction")
                else:
                    reasons.append("left alone: by where or granularity")
        return reasons


def members(optimizer: Optimizer) -> list[Tensor]:
    """All parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def set_gradients(parameters: list[Tensor], gradients: list[Tensor | None]) -> None:
    """Set ``.grad`` to copies."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()


@torch.no_grad()
def gradient_for(parameter: Tensor, generator: torch.Generator) -> Tensor:
    """A gradient at about 45° to its weight; the present one if that is sparse."""
    if parameter.grad is not None and parameter.grad.layout is not torch.strided:
        return parameter.grad.clone()
    # In the memory order of the weight, as torch accumulates gradients: its fused optimizers need that.
    noise = torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=generator))
    parts = (tensor / tensor.norm().clamp_min(1e-12) for tensor in (noise, parameter.detach()))
    return torch.as_tensor(sum(parts)).to(parameter.dtype)


def largest_cosine(pairs: list[tuple[Tensor, Tensor]], options: Options) -> float:
    """|cos| of the angle between two vectors, or the largest of any row."""
    dense = [tuple(as_real(local(t.detach())).to_dense().double() for t in pair) for pair in pairs]
    shape = (-1,) if options.granularity != "row" else (len(dense[0][0]), -1)
    left, right = (torch.cat([t.reshape(shape) for t in column]) for column in zip(*dense, strict=True))
    products = (left * right).sum(-1).abs() / (left.norm(dim=-1) * right.norm(dim=-1)).clamp_min(1e-300)
    return float(products.max())


def lost_in_rounding(update: Tensor, weight: Tensor) -> float:
    """How large a cosine of an update with its weight the rounding of the new weight can make; 0 without an update."""
    pair = (
        torch.linalg.vector_norm(as_real(local(t.detach())).to_dense(), dtype=torch.float64) for t in (weight, update)
    )
    size, change = map(float, pair)
    return 2 * torch.finfo(weight.dtype).eps * size / change if change else 0.0


def copied(optimizer: Optimizer) -> Optimizer:
    """A copy with all attributes but hooks and replaced methods, on copies of its parameters.

    `copy.deepcopy` keeps only what `__getstate__` of torch returns, and so loses attributes of other classes.
    """
    twin: Optimizer = type(optimizer).__new__(type(optimizer))
    memo: dict[int, Any] = {id(optimizer): twin}
    for parameter in members(optimizer):
        memo[id(parameter)] = copied_parameter(parameter)
    for state in (each for each in optimizer.state.values() if isinstance(each, dict)):
        tensors = [value for value in state.values() if hasattr(value, "__tensor_flatten__")]
        memo.update({id(tensor): cloned(tensor) for tensor in tensors})
    for name, value in vars(optimizer).items():
        if "_hooks" in name:
            vars(twin)[name] = type(value)()
        elif not (callable(value) and hasattr(type(optimizer), name)):  # a replaced method belongs to the original
            try:
                vars(twin)[name] = copy.deepcopy(value, memo)
            except Exception as error:  # a third-party class can hold anything
                raise TypeError(
                    f"verify() needs a copy of this {type(optimizer).__name__}, and its attribute {name!r} cannot be "
                    f"copied: {error}"
                ) from error
    return twin


def copied_parameter(parameter: Tensor) -> Tensor:
    """A copy with the plain attributes that some optimizers read."""
    twin = copy.deepcopy(parameter)
    plain = {k: v for k, v in vars(parameter).items() if isinstance(v, bool | int | float | str | tuple)}
    vars(twin).update(plain)
    return twin


def cloned(tensor: Any) -> Any:
    """A clone, also of a tensor subclass that cannot clone itself, such as the low-bit states of torchao."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return tensor.clone()
    names, context = tensor.__tensor_flatten__()
    inner = {name: cloned(getattr(tensor, name)) for name in names}
    return type(tensor).__tensor_unflatten__(inner, context, tensor.shape, tensor.stride())


@contextmanager
def same_random_numbers() -> Iterator[Callable[[], None]]:
    """Yield a function that sets all random numbers to the state before the block, and do so after it."""
    cpu, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def rewind() -> None:
        torch.set_rng_state(cpu)
        random.setstate(python)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)

    try:
        yield rewind
    finally:
        rewind()
