"""The diagnosis of a network before and after its training, small enough for the record of a run."""

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
from .one_batch import gradients_of, kinds_of
from .scaling import Pass

Criterion = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]
# Samples that the gradient is taken of, and that rescaled networks are shown.
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
    """Plain data of a network at the start and at the end of training; ``loss`` takes its outputs and the targets.

    ``radial`` is the share of a parameter's gradient energy that is radial, ``share`` the same as a share of the
    whole gradient's energy, ``norm`` the weight's. What each parameter's size is for is measured at the end, by
    hundreds of passes, which ``repeated`` may make faster. Takes no random numbers: other runs may be using them in
    other threads.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> samples = torch.randn(20, 4), torch.randint(3, (20,))
    >>> record = recorded_diagnosis(model, model, nn.functional.cross_entropy, *samples)
    >>> record["parameters"]["0.weight"]["start"] == record["parameters"]["0.weight"]["end"]
    True
    """
    rows = chosen_samples(len(inputs)).to(inputs.device)
    batch = inputs[rows], targets[rows]
    before, after = _measured(start, loss, batch), _measured(end, loss, batch)
    kinds = _kinds(end, loss, batch, repeated)
    parameters = {
        name: {
            "kind": kinds.get(name),
            "start": _numbers(before, name),
            "end": _numbers(after, name),
        }
        for name, _ in end.named_parameters()
    }
    return {"samples": len(batch[0]), "parameters": parameters}


def chosen_samples(count: int, most: int = SAMPLES) -> Tensor:
    """Rows of at most so many samples out of ``count``, spread evenly, for these may lie in the order of their classes.

    >>> chosen_samples(10, 4)
    tensor([0, 3, 6, 9])
    """
    return torch.linspace(0, count - 1, min(count, most)).long()


def _measured(model: nn.Module, loss: Criterion, batch: Batch) -> dict[str, Measurement]:
    with _training_without_dropout(model):
        _, gradients = gradients_of(_forward(model, loss, batch), dict(model.named_parameters()))
        return measurements(gradients, Options(), None)


def _kinds(model: nn.Module, loss: Criterion, batch: Batch, repeated: Callable[[Pass], Pass]) -> dict[str, str]:
    rows = chosen_samples(len(batch[0]), PROBED).to(batch[0].device)
    few, parameters = _forward(model, loss, (batch[0][rows], batch[1][rows])), dict(model.named_parameters())
    # Not in bfloat16, whose roundings are larger than what tells scale-invariant from not.
    with _training_without_dropout(model), torch.autocast(batch[0].device.type, enabled=False):
        measured = measurements(gradients_of(few, parameters)[1], Options(), None)
        with torch.no_grad():
            again = _seen_from_cpu(repeated(few))
            return kinds_of(again, again(), parameters, measured)


def _forward(model: nn.Module, loss: Criterion, batch: Batch) -> Forward:
    return Forward(model, lambda network, pair: loss(network(pair[0]), pair[1]), batch, keep_random=False)


def _seen_from_cpu(forward: Pass) -> Pass:
    """Outputs of so few samples are compared there, without asking a GPU for each number."""

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
    """Four digits; None for what is not finite, which JSON does not know."""
    return float(f"{value:.4g}") if abs(value) < float("inf") else None


@contextmanager
def _training_without_dropout(model: nn.Module) -> Iterator[None]:
    """Batch norm as in training, dropout as in use: it would need random numbers."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = not isinstance(module, _DropoutNd)
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training
