"""The diagnosis of a network before and after its training, small enough for the record of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..options import Options
from .action import Measured, measured
from .forward import Forward
from .one_batch import gradients_of, kinds_of

# Samples that the gradient is taken of, and that rescaled networks are shown.
SAMPLES, PROBED = 512, 32


def recorded_diagnosis(
    start: nn.Module, end: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor
) -> dict[str, Any]:
    """Plain data of a network at the start and at the end of training; ``loss`` takes its outputs and the targets.

    ``radial`` is the share of a parameter's gradient energy that is radial, ``share`` the same as a share of the
    whole gradient's energy, ``norm`` the weight's. What each parameter's size is for is measured at the end. Takes no
    random numbers: other runs may be using them in other threads.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    >>> samples = torch.randn(20, 4), torch.randint(3, (20,))
    >>> found = recorded_diagnosis(model, model, nn.functional.cross_entropy, *samples)
    >>> found["parameters"]["0.weight"]["start"] == found["parameters"]["0.weight"]["end"]
    True
    """
    rows = chosen_samples(len(inputs)).to(inputs.device)
    batch = inputs[rows], targets[rows]
    before, _ = _measured(start, loss, batch, 0)
    after, kinds = _measured(end, loss, batch, PROBED)
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


def _measured(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], batch: tuple[Tensor, Tensor], probed: int
) -> tuple[dict[str, Measured], dict[str, str]]:
    def of_pair(network: nn.Module, pair: tuple[Tensor, Tensor]) -> Tensor:
        return loss(network(pair[0]), pair[1])

    with _training_without_dropout(model):
        parameters = dict(model.named_parameters())
        _, gradients = gradients_of(Forward(model, of_pair, batch, keep_random=False), parameters)
        found = measured(gradients, Options(), None)
        if not probed:
            return found, {}
        rows = chosen_samples(len(batch[0]), probed).to(batch[0].device)
        few = Forward(model, of_pair, (batch[0][rows], batch[1][rows]), keep_random=False)
        effect, gradients = gradients_of(few, parameters)
        return found, kinds_of(few, effect, parameters, measured(gradients, Options(), None))


def _numbers(found: Mapping[str, Measured], name: str) -> dict[str, float | None] | None:
    if name not in found:
        return None
    angle = found[name].angle
    energy = sum(one.angle.gradient_norm**2 for one in found.values())
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
