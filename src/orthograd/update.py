"""project="update": make orthogonal what the base optimizer did to a weight, not what it was given.

Momentum and Adam mix gradients of many steps, each orthogonal to the weight of its own time. The update they
make of them has a radial part again. Here the step is taken first; then, of w ← (1 − ηλ) w + Δ, only Δ is
projected. Decoupled weight decay ηλ is radial on purpose and stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .engine import Projector, addresses
from .engine.dense import Pair
from .options import Options
from .partition import Segments

# Classes whose weight_decay is decoupled without a key in their param groups that says so.
DECOUPLED = {"AdamW", "Adafactor", "Muon"}
KIND = ("shape", "dtype", "device")
DECOUPLED_KEYS = ("decoupled_weight_decay", "weight_decouple")


class Updates:
    """Remembers weights before a step and projects the updates after it. Costs one copy of the weights."""

    def __init__(self) -> None:
        self._before: dict[int, Tensor] = {}

    @torch.no_grad()
    def remember(self, segments: Segments) -> None:
        """Keep a copy of every weight, in memory that is used again at the next step."""
        for parameter in (parameter for segment in segments for parameter in segment):
            copy = self._before.get(id(parameter))
            if copy is None or any(getattr(copy, what) != getattr(parameter, what) for what in KIND):
                self._before[id(parameter)] = parameter.detach().clone()
            else:
                copy.copy_(parameter)

    @torch.no_grad()
    def project_(self, optimizer: Optimizer, options: Options, segments: Segments, projector: Projector) -> None:
        """Take the radial part out of the updates of all parameters that had a gradient."""
        kept = {
            id(parameter): 1 - shrinkage(optimizer, group, options)
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        changed = [[p for p in segment if p.grad is not None] for segment in segments]
        pairs = [[Pair(p.detach(), self._before[id(p)]) for p in segment] for segment in changed if segment]
        for parameter in (p for segment in changed for p in segment):
            parameter.sub_(self._before[id(parameter)] * kept[id(parameter)])
        if pairs and not pairs[0][0].gradient.is_cuda:
            projector.project_(pairs)
        elif pairs:
            where = addresses(pairs, *map(list, zip(*(pair for segment in pairs for pair in segment), strict=True)))
            if not projector.project_again_(where):
                projector.project_(pairs, where)
        for parameter in (p for segment in changed for p in segment):
            parameter.add_(self._before[id(parameter)] * kept[id(parameter)])


def shrinkage(optimizer: Optimizer, group: dict[str, Any], options: Options) -> Any:
    """ηλ: by how much decoupled weight decay alone shrank the weights of a group in this step."""
    is_decoupled = options.decoupled_decay
    if is_decoupled is None:
        said = [group[key] for key in DECOUPLED_KEYS if key in group]
        is_decoupled = any(said) if said else any(c.__name__ in DECOUPLED for c in type(optimizer).__mro__)
    if not is_decoupled or not group.get("weight_decay"):
        return 0.0
    # Fused optimizers under a GradScaler skip the step, decay included, where a gradient was infinite.
    found_inf = getattr(optimizer, "found_inf", None)
    return group["lr"] * group["weight_decay"] * (1 if found_inf is None else 1 - found_inf)
