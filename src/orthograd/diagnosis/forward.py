"""A forward pass that leaves a network unchanged and can be repeated with the same random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]


class Effect(NamedTuple):
    """The loss of a forward pass, and the outputs of the network as one vector; None if it was not called."""

    loss: Tensor
    outputs: Tensor | None


class Forward:
    """Repeatable forward pass of a network and its loss on one batch.

    ``loss`` is called as loss(model, batch). A criterion, which is an `nn.Module` or a function of
    `torch.nn.functional`, is called as criterion(model(inputs), targets) with batch = (inputs, targets). So is any
    other function that raises for (model, batch) before it has run the model.
    """

    def __init__(self, model: nn.Module, loss: Loss, batch: Any, *, keep_random: bool = True):
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        if not callable(loss):
            raise TypeError(f"expected loss(model, batch) or a criterion such as nn.CrossEntropyLoss(), got {loss!r}")
        self.model, self._batch, self._keep_random = model, batch, keep_random
        self._is_certain = is_criterion(loss)  # how to call it
        self._loss = _of_criterion(loss, batch) if self._is_certain else loss
        self._buffers = _Buffers(model)

    def __call__(self) -> Effect:
        """Run one pass, and restore buffers and random number generators."""
        seen: list[Any] = []
        ends = self.model.register_forward_hook(lambda _, __, output: seen.append(output))
        starts = self.model.register_forward_pre_hook(self._settle)
        try:
            with self._buffers.kept(), same_random_numbers(self.model, self._keep_random):
                loss = self._called()
        finally:
            ends.remove()
            starts.remove()
        return Effect(_one_number(loss), _as_vector(seen))

    def _settle(self, *_: object) -> None:
        """Note that the function has run the network: it is a loss(model, batch), and its errors are final."""
        self._is_certain = True

    def _called(self) -> Any:
        try:
            return self._loss(self.model, self._batch)
        except (TypeError, AttributeError, AssertionError) as error:  # a network used as a tensor
            if self._is_certain:
                raise
            first = error
        try:
            self._loss = _of_criterion(self._loss, self._batch)
            return self._loss(self.model, self._batch)
        except Exception as second:
            raise TypeError(
                f"expected loss(model, batch) or criterion(outputs, targets), got a function that raised {first!r} as "
                f"loss(model, batch) and {second!r} as criterion(outputs, targets)"
            ) from first


def is_criterion(loss: Loss) -> bool:
    """True if a loss is known by its type to take outputs and targets.

    >>> is_criterion(nn.functional.cross_entropy), is_criterion(nn.MSELoss()), is_criterion(lambda model, batch: 0)
    (True, True, False)
    """
    return isinstance(loss, nn.Module) or getattr(loss, "__module__", None) == nn.functional.__name__


@contextmanager
def same_random_numbers(model: nn.Module, is_wanted: bool = True) -> Iterator[None]:
    """Restore the generators of torch and Python afterwards, so that each pass has the same dropout."""
    if not is_wanted:
        yield
        return
    devices = sorted({parameter.device.index or 0 for parameter in model.parameters() if parameter.is_cuda})
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(state)


class _Buffers:
    """A copy of a network's buffers: BatchNorm updates its running statistics in each forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self._places = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._copies = [buffer.detach().clone() for _, _, buffer in self._places]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore every buffer, object and values, after the block."""
        try:
            yield
        finally:
            for module, name, buffer in self._places:
                module._buffers[name] = buffer
            if self._copies:
                torch._foreach_copy_([buffer.data for _, _, buffer in self._places], self._copies)


def _of_criterion(criterion: Loss, batch: Any) -> Loss:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        got = f"a sequence of length {len(batch)}" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise ValueError(
            f"expected batch = (inputs, targets) for the criterion {criterion!r}, got {got}; "
            "for any other batch pass a function loss(model, batch)"
        )
    return lambda model, pair: criterion(model(pair[0]), pair[1])


def _one_number(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.is_complex():
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"expected a loss of one real number, got {got}")
    return loss.reshape(())


def _as_vector(outputs: list[Any]) -> Tensor | None:
    """All outputs of the network in float64; only ``.logits`` if it has them, since a loss may be beside them."""
    seen = (part for output in outputs for part in _tensors(getattr(output, "logits", output)))
    parts = [part for part in seen if part.numel()]
    wide = torch.float32 if any(part.device.type == "mps" for part in parts) else torch.float64
    return torch.cat([part.detach().flatten().to(parts[0].device, wide) for part in parts]) if parts else None


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield from [torch.view_as_real(output)] if output.is_complex() else [output]
    elif isinstance(output, Mapping):
        yield from (part for value in output.values() for part in _tensors(value))
    elif isinstance(output, (tuple, list)):
        yield from (part for value in output for part in _tensors(value))
