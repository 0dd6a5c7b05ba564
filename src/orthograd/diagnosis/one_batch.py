"""`diagnose`: the effect that ⊥Grad would have on each parameter of a network, from one batch."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from ..options import Options
from ..partition import Where
from .action import Choice, Measurement, choice, measurements, refuse_shards
from .forward import Effect, Forward, Loss
from .result import Diagnosis, Row, cautions
from .scaling import MEANINGS, SAME, Pass, role_of
from .shrinkage import checked_optimizer, shrinkage_cautions, shrinkages

# Each takes three or four forward passes, so beyond this many parameters they are run only if asked for.
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
    optimizer: Optimizer | None = None,
    steps: int | None = None,
) -> Diagnosis:
    """Measure the effect that ⊥Grad would have on each parameter of a network, with one backward pass.

    Args:
        model: a network in training mode. It is left unchanged, bit for bit: weights, ``.grad``, buffers, mode, and the
            random number generators of torch and Python.
        loss: called as ``loss(model, batch)``; returns one number to differentiate. A criterion (an `nn.Module` such as
            ``nn.CrossEntropyLoss()``, or a function of outputs and targets) is called as
            ``criterion(model(inputs), targets)`` with batch = (inputs, targets).
        batch: any object that ``loss`` accepts; for a criterion a pair (inputs, targets). Of a `DataLoader` the first
            batch is taken, and the diagnosis warns if the last batch of an epoch is much smaller than the others.
        renormalize: as in `orthograd.attach`, like the next three.
        granularity: "group" and "model" both mean the whole network as one vector.
        where: called with (name, parameter); False skips that parameter.
        scalars: project one-element tensors too.
        why: measure the effect of rescaling each parameter, with three or four forward passes each. None: only for up
            to 300 parameters.
        optimizer: the optimizer that will train the network, with or without ⊥Grad attached. Needs ``steps``.
        steps: number of steps that it will take at its present learning rate. The diagnosis then tells how far weight
            decay alone shrinks each parameter that ⊥Grad projects, and warns if underconfidence is to be expected. Use
            it before training: the warning skips weights whose rescaling does not change the loss. With a schedule the
            sum of rates counts, so pass that sum divided by the present rate: N // 2 for a cosine schedule of N steps.

    Returns:
        A `Diagnosis`. Print it for a table, sorted by the share of the gradient that ⊥Grad removes.

    Raises:
        TypeError: if ``model`` is not an `nn.Module`, ``loss`` cannot be called in either way, ``optimizer`` is not an
            optimizer, or ``steps`` is not an integer.
        ValueError: if no parameter requires a gradient, the loss is not one number that depends on them, parameters
            are sharded over ranks, ``optimizer`` or ``steps`` is given without the other, ``steps`` is below 1, or the
            optimizer has other parameters than the network.

    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> batch = torch.randn(16, 4), torch.randint(3, (16,))
    >>> diagnosis = diagnose(model, nn.CrossEntropyLoss(), batch)
    >>> diagnosis["0.weight"].kind, diagnosis["0.weight"].action, diagnosis["2.weight"].action
    ('invariant', 'leave', 'act')
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)
    >>> diagnosis = diagnose(model, nn.CrossEntropyLoss(), batch, optimizer=optimizer, steps=20000)
    >>> round(diagnosis.shrinkage["2.weight"].factor, 2)
    0.82
    """
    if (optimizer is None) != (steps is None):
        raise ValueError(f"expected both optimizer and steps or neither, got {_given(optimizer, steps)}")
    options = Options(renormalize, granularity, scalars=scalars)
    if isinstance(model, DistributedDataParallel):
        model = model.module  # DDP would wait for a backward pass of all parameters
    small_batch: Sequence[str] = ()
    if isinstance(batch, DataLoader):
        batch, small_batch = first_batch(batch), small_batch_cautions(batch)
    forward = Forward(model, loss, batch)
    parameters = dict(model.named_parameters())
    if optimizer is not None and steps is not None:
        optimizer = checked_optimizer(parameters, optimizer, steps)  # before anything is computed
    effect, gradients = gradients_of(forward, parameters)
    measured = measurements(gradients, options, where)
    is_explained = len(parameters) <= EXPLAINED if why is None else why
    unsteady = _unsteady(forward, effect) if is_explained else ()
    roles = roles_of(forward, effect, parameters, measured) if is_explained and not unsteady else {}
    choices = {name: choice(name, parameters[name], measured.get(name), options, where) for name in parameters}
    rows = _rows(parameters, measured, roles, choices)
    sparse = [name for name, (gradient, _) in gradients.items() if gradient.layout is not torch.strided]
    warnings = (*unsteady, *cautions(rows, model, options, sparse), *small_batch)
    if optimizer is None or steps is None:
        return Diagnosis(float(effect.loss), rows, warnings)
    stepped = {name: parameters[name] for name in parameters if name in gradients}
    shrunk = shrinkages(stepped, optimizer, steps, options=options, where=where)
    warnings += tuple(shrinkage_cautions(shrunk, rows, optimizer))
    return Diagnosis(float(effect.loss), rows, warnings, steps, shrunk)


def first_batch(loader: DataLoader[Any]) -> Any:
    """The first batch of a loader. Its generator, and those of torch and Python, are left as they were."""
    own = loader.generator
    state, drawn, global_state = random.getstate(), None if own is None else own.get_state(), torch.get_rng_state()
    try:
        return next(iter(loader))
    except StopIteration:
        raise ValueError("expected a loader with at least one batch, got none") from None
    finally:
        random.setstate(state)
        torch.set_rng_state(global_state)
        if own is not None and drawn is not None:
            own.set_state(drawn)


def small_batch_cautions(loader: DataLoader[Any]) -> list[str]:
    """A warning if the last batch of an epoch has less than half the samples of the others."""
    size = loader.batch_size
    if size is None or loader.drop_last or isinstance(loader.dataset, IterableDataset):
        return []
    whole, rest = divmod(len(loader.sampler), size)  # type: ignore[arg-type]
    if not whole or not 0 < rest < size / 2:
        return []
    return [
        f"The last batch of an epoch has {rest} of {size} samples, and its step is as large as the others. Such noise "
        "regularizes training without ⊥Grad: for ResNet-18 it took over most of what ⊥Grad gains. Compare both "
        "methods with drop_last=True too."
    ]


def _given(optimizer: object, steps: object) -> str:
    return f"steps={steps!r} without an optimizer" if optimizer is None else "an optimizer without steps"


def gradients_of(forward: Forward, parameters: Mapping[str, Tensor]) -> tuple[Effect, dict[str, tuple[Tensor, Tensor]]]:
    """The loss and outputs, and gradient and weight by name for every parameter that the loss depends on."""
    for name, parameter in parameters.items():
        refuse_shards(name, parameter)
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    if not trained:
        raise ValueError("expected a network with parameters to train, got none with requires_grad=True")
    with torch.inference_mode(False), torch.enable_grad():
        effect = forward()
        if not effect.loss.requires_grad:
            raise ValueError("expected a loss that depends on the network's parameters, got one without a graph")
        # Not backward(), which would write to .grad and run the hooks of DDP and others.
        gradients = torch.autograd.grad(effect.loss, list(trained.values()), allow_unused=True)
    pairs = zip(trained.items(), gradients, strict=True)
    reached = {name: (gradient, weight) for (name, weight), gradient in pairs if gradient is not None}
    return Effect(effect.loss.detach(), effect.outputs), reached


@torch.no_grad()
def _unsteady(forward: Forward, effect: Effect) -> tuple[str, ...]:
    """A warning if a second pass gives another loss: then the effect of rescaling cannot be measured."""
    first, second = float(effect.loss), float(forward().loss)
    if math.isclose(first, second, rel_tol=SAME) or math.isnan(first):
        return ()
    return (
        f"Two calls on the same batch gave losses of {first:.4g} and {second:.4g}: the loss changes the batch in "
        "place, or draws its own random numbers. The effect of rescaling each parameter was not measured.",
    )


def roles_of(
    forward: Pass, effect: Effect, parameters: Mapping[str, Tensor], measured: Mapping[str, Measurement]
) -> dict[str, str]:
    """The effect of rescaling each parameter that has a finite gradient and a nonzero weight."""
    return {
        name: role_of(parameters[name], forward, effect, 0.0 if math.isnan(angle.cosine) else angle.cosine)
        for name, (angle, *_) in measured.items()
        if angle.weight_norm and math.isfinite(angle.weight_norm) and math.isfinite(angle.gradient_norm)
    }


def _rows(
    parameters: Mapping[str, Tensor],
    measured: Mapping[str, Measurement],
    roles: Mapping[str, str],
    choices: Mapping[str, Choice],
) -> tuple[Row, ...]:
    energies = [one.angle.gradient_norm**2 for one in measured.values() if math.isfinite(one.angle.gradient_norm)]
    energy = sum(energies) or 1.0
    rows = [
        _row(name, weight, measured.get(name), *choices[name], roles.get(name), energy)
        for name, weight in parameters.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.removed))


def _row(
    name: str,
    weight: Tensor,
    measurement: Measurement | None,
    action: str,
    reason: str,
    role: str | None,
    energy: float,
) -> Row:
    shape = tuple(weight.shape)
    if measurement is None:
        norm = float(torch.linalg.vector_norm(weight.detach().flatten(), dtype=_wide(weight)))
        return Row(name, shape, norm, None, None, None, 0.0, action, reason)
    cosine = None if not math.isfinite(measurement.angle.cosine) else measurement.angle.cosine
    if role == "idle" and action == "act":
        action = "leave"
    # A parameter that is left alone may have a radial part of rounding size, which counts as zero.
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
        _explained(reason, role),
        role,
    )


def _explained(reason: str, role: str | None) -> str:
    """The reason, with the effect of rescaling, which separates always orthogonal from orthogonal by chance."""
    if role is None or (reason and not reason.startswith("orthogonal already")):
        return reason
    if reason and role in ("outputs", "part of outputs", "function"):
        return f"{reason}, by chance: {MEANINGS[role]}"
    return MEANINGS[role]


def _wide(weight: Tensor) -> torch.dtype:
    return torch.complex128 if weight.is_complex() else torch.float64
