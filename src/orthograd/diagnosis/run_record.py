"""The diagnosis of a network before and after training, small enough for the record of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..options import Options
from .action import Measurement, measurements
from .forward import Effect, Forward
from .one_batch import gradients_of, roles_of
from .scaling import Pass

Criterion = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]
# Samples for the gradient, and for the passes with rescaled parameters.
SAMPLES, PROBED = 512, 32


def recorded_diagnosis(
    start: nn.Module,
    end: nn.Module,
    loss: Criterion,
    inputs: Tensor,
    targets: Tensor,
    *,
    repeated: Callable[[Pass], Pass] = lambda taken: taken,
) -> dict[str, Any]:
    """The diagnosis of a network at the start and at the end of training, as plain data.

    Args:
        start: the network before training.
        end: the network after training.
        loss: called as loss(outputs, targets).
        inputs: training samples; up to 512 of them are used.
        targets: their labels.
        repeated: may replace the forward pass by a faster one, which is called hundreds of times.

    Returns:
        By parameter: ``radial``, the radial share of its gradient energy; ``share``, the same as a share of the whole
        gradient's energy; ``norm``, the norm of the weight; and ``kind``, the effect of rescaling it at the end.

    Draws no random numbers, since other runs may use the generators in other threads.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> samples = torch.randn(20, 4), torch.randint(3, (20,))
    >>> record = recorded_diagnosis(model, model, nn.functional.cross_entropy, *samples)
    >>> record["parameters"]["0.weight"]["start"] == record["parameters"]["0.weight"]["end"]
    True
    """
    rows = chosen_samples(len(inputs)).to(inputs.device)
    batch = inputs[rows], targets[rows]
    before, after = _measured(start, loss, batch), _measured(end, loss, batch)
    roles = _roles(end, loss, batch, repeated)
    parameters = {
        name: {
            "kind": roles.get(name),
            "start": _numbers(before, name),
            "end": _numbers(after, name),
        }
        for name, _ in end.named_parameters()
    }
    return {"samples": len(batch[0]), "parameters": parameters}


def chosen_samples(count: int, most: int = SAMPLES) -> Tensor:
    """Indices of at most ``most`` out of ``count`` samples, evenly spaced, since samples may be sorted by class.

    >>> chosen_samples(10, 4)
    tensor([0, 3, 6, 9])
    """
    return torch.linspace(0, count - 1, min(count, most)).long()


def _measured(model: nn.Module, loss: Criterion, batch: Batch) -> dict[str, Measurement]:
    with _training_without_dropout(model):
        _, gradients = gradients_of(_forward(model, loss, batch), dict(model.named_parameters()))
        return measurements(gradients, Options(), None)


def _roles(model: nn.Module, loss: Criterion, batch: Batch, repeated: Callable[[Pass], Pass]) -> dict[str, str]:
    rows = chosen_samples(len(batch[0]), PROBED).to(batch[0].device)
    few, parameters = _forward(model, loss, (batch[0][rows], batch[1][rows])), dict(model.named_parameters())
    # Not in bfloat16, whose rounding is larger than the effects measured here.
    with _training_without_dropout(model), torch.autocast(batch[0].device.type, enabled=False):
        measured = measurements(gradients_of(few, parameters)[1], Options(), None)
        with torch.no_grad():
            again = _seen_from_cpu(repeated(few))
            return roles_of(again, again(), parameters, measured)


def _forward(model: nn.Module, loss: Criterion, batch: Batch) -> Forward:
    return Forward(model, lambda network, pair: loss(network(pair[0]), pair[1]), batch, keep_random=False)


def _seen_from_cpu(forward: Pass) -> Pass:
    """The same pass with results on the CPU, so that they are compared without a GPU transfer per number."""

    def effect() -> Effect:
        loss, outputs = forward()
        return Effect(loss.cpu(), None if outputs is None else outputs.cpu())

    return effect


def _numbers(measured: Mapping[str, Measurement], name: str) -> dict[str, float | None] | None:
    if name not in measured:
        return None
    angle = measured[name].angle
    energy = sum(one.angle.gradient_norm**2 for one in measured.values())
    radial = angle.cosine**2 if angle.weight_norm else 0.0
    return {
        "radial": _rounded(radial),
        "share": _rounded(radial * angle.gradient_norm**2 / energy if energy else 0.0),
        "norm": _rounded(angle.weight_norm),
    }


def _rounded(value: float) -> float | None:
    """The value with four digits; None if it is not finite, which JSON cannot hold."""
    return float(f"{value:.4g}") if abs(value) < float("inf") else None


@contextmanager
def _training_without_dropout(model: nn.Module) -> Iterator[None]:
    """Put a network in training mode, with dropout off, because it would draw random numbers."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = not isinstance(module, _DropoutNd)
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training
