"""A network, a loss and a batch in; what ⊥Grad would do to each parameter out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..options import Options
from ..partition import Where
from .action import Choice, Measurement, choice, measurements, refuse_shards
from .forward import Effect, Forward, Loss
from .result import Diagnosis, Row, cautions
from .scaling import MEANINGS, SAME, Pass, kind_of

# Three or four forward passes each: beyond so many parameters they take long, and have to be asked for.
EXPLAINED = 300


def diagnose(
    model: nn.Module,
    loss: Loss,
    batch: Any,
    *,
    renormalize: bool = True,
    granularity: str = "tensor",
    where: Where | None = None,
    scalars: bool = False,
    why: bool | None = None,
) -> Diagnosis:
    """What ⊥Grad would do to each parameter of a network, from one backward pass on one batch.

    Args:
        model: in the mode you train it in. It is left bit for bit as it was: weights, ``.grad``, buffers, mode, and
            the random numbers of torch and Python.
        loss: called as ``loss(model, batch)``, and returns one number to differentiate. A criterion (an `nn.Module`
            such as ``nn.CrossEntropyLoss()``, or a function of outputs and targets) is called as
            ``criterion(model(inputs), targets)`` with batch = (inputs, targets).
        why: say of each parameter what its size is for, by halving and doubling it: three or four forward passes
            each. None: where there are at most 300 parameters.

    The other options are those of `orthograd.attach`; "group" and "model" both mean the whole network as one vector.

    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> diagnosis = diagnose(model, nn.CrossEntropyLoss(), (torch.randn(16, 4), torch.randint(3, (16,))))
    >>> diagnosis["0.weight"].kind, diagnosis["0.weight"].action, diagnosis["2.weight"].action
    ('invariant', 'leave', 'act')
    """
    options = Options(renormalize, granularity, scalars=scalars)
    if isinstance(model, DistributedDataParallel):
        model = model.module  # its bookkeeping would wait for a backward pass of all parameters
    forward = Forward(model, loss, batch)
    parameters = dict(model.named_parameters())
    effect, gradients = gradients_of(forward, parameters)
    measured = measurements(gradients, options, where)
    is_explained = len(parameters) <= EXPLAINED if why is None else why
    unsteady = _unsteady(forward, effect) if is_explained else ()
    kinds = kinds_of(forward, effect, parameters, measured) if is_explained and not unsteady else {}
    choices = {name: choice(name, parameters[name], measured.get(name), options, where) for name in parameters}
    rows = _rows(parameters, measured, kinds, choices)
    sparse = [name for name, (gradient, _) in gradients.items() if gradient.layout is not torch.strided]
    return Diagnosis(float(effect.loss), rows, (*unsteady, *cautions(rows, model, options, sparse)))


def gradients_of(forward: Forward, parameters: Mapping[str, Tensor]) -> tuple[Effect, dict[str, tuple[Tensor, Tensor]]]:
    """The loss with its outputs, and by name the gradient and the weight of every parameter that the loss reaches."""
    for name, parameter in parameters.items():
        refuse_shards(name, parameter)
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    if not trained:
        raise ValueError("expected a network with parameters to train, got none with requires_grad")
    with torch.inference_mode(False), torch.enable_grad():
        effect = forward()
        if not effect.loss.requires_grad:
            raise ValueError("expected a loss that depends on the network's parameters, got one without a graph")
        # Not backward(): that would write to .grad and set off the hooks of whoever waits for gradients.
        gradients = torch.autograd.grad(effect.loss, list(trained.values()), allow_unused=True)
    pairs = zip(trained.items(), gradients, strict=True)
    reached = {name: (gradient, weight) for (name, weight), gradient in pairs if gradient is not None}
    return Effect(effect.loss.detach(), effect.outputs), reached


@torch.no_grad()
def _unsteady(forward: Forward, effect: Effect) -> tuple[str, ...]:
    """A warning where a second pass gives another loss: then rescaling a parameter cannot tell what it is for."""
    first, second = float(effect.loss), float(forward().loss)
    if math.isclose(first, second, rel_tol=SAME) or math.isnan(first):
        return ()
    return (
        f"Called twice on the same batch the loss was {first:.4g}, then {second:.4g}: it changes the batch in place, "
        "or draws random numbers of its own. What each parameter's size is for cannot be told.",
    )


def kinds_of(
    forward: Pass, effect: Effect, parameters: Mapping[str, Tensor], measured: Mapping[str, Measurement]
) -> dict[str, str]:
    """What the size of each parameter is for; of those with a finite gradient and a weight that is not zero."""
    return {
        name: kind_of(parameters[name], forward, effect, 0.0 if math.isnan(angle.cosine) else angle.cosine)
        for name, (angle, *_) in measured.items()
        if angle.weight_norm and math.isfinite(angle.weight_norm) and math.isfinite(angle.gradient_norm)
    }


def _rows(
    parameters: Mapping[str, Tensor],
    measured: Mapping[str, Measurement],
    kinds: Mapping[str, str],
    choices: Mapping[str, Choice],
) -> tuple[Row, ...]:
    energies = [one.angle.gradient_norm**2 for one in measured.values() if math.isfinite(one.angle.gradient_norm)]
    energy = sum(energies) or 1.0
    rows = [
        _row(name, weight, measured.get(name), *choices[name], kinds.get(name), energy)
        for name, weight in parameters.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.removed))


def _row(
    name: str,
    weight: Tensor,
    measurement: Measurement | None,
    action: str,
    reason: str,
    kind: str | None,
    energy: float,
) -> Row:
    shape = tuple(weight.shape)
    if measurement is None:
        norm = float(torch.linalg.vector_norm(weight.detach().flatten(), dtype=_wide(weight)))
        return Row(name, shape, norm, None, None, None, 0.0, action, reason)
    cosine = None if not math.isfinite(measurement.angle.cosine) else measurement.angle.cosine
    if kind == "idle" and action == "act":
        action = "leave"
    # Of what is left alone nothing is removed; a rounding's worth of radial part is not worth a number.
    removed = 0.0 if action == "leave" else measurement.removed_energy / energy
    return Row(
        name,
        shape,
        measurement.angle.weight_norm,
        measurement.angle.gradient_norm,
        cosine,
        None if cosine is None else cosine**2,
        removed,
        action,
        _explained(reason, kind),
        kind,
    )


def _explained(reason: str, kind: str | None) -> str:
    """The reason, and what rescaling shows: it tells orthogonal for good from orthogonal by chance."""
    if kind is None or (reason and not reason.startswith("orthogonal already")):
        return reason
    if reason and kind in ("outputs", "part of outputs", "function"):
        return f"{reason}, by chance: {MEANINGS[kind]}"
    return MEANINGS[kind]


def _wide(weight: Tensor) -> torch.dtype:
    return torch.complex128 if weight.is_complex() else torch.float64
