"""SGD and ⊥Grad in one step, for training that is bound by the memory of a GPU.

⊥Grad by `attach` works with any optimizer, and so hands its result over in memory. Here nothing is handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD

from .engine.dense import flattened
from .engine.projector import has_triton
from .options import Options
from .partition import Partition, Where


class FusedSGD(SGD):
    """`torch.optim.SGD` with momentum, for weights in float32 on one GPU, with ⊥Grad where ``options`` are given.

    ``copies`` has weights in another dtype, which follow each step: where a parameter has one, its gradient is that of
    the copy. State and checkpoints are those of `torch.optim.SGD`.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        rate: float,
        momentum: float,
        decay: float,
        *,
        options: Options | None = None,
        where: Where | None = None,
        copies: Mapping[Tensor, Tensor] | None = None,
    ):
        super().__init__(parameters, rate, momentum, weight_decay=decay)
        self._copies, self._options = dict(copies or {}), options
        projected = Partition(options, where).segments(self.param_groups)[options] if options else []
        self._projected = {id(parameter) for segment in projected for parameter in segment}
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self._plan: tuple[Any, Any] = None, None
        self._captured: list[Any] = []

    @staticmethod
    def serves(options: Options | None, momentum: float) -> bool:
        """Whether it can do what is wanted: ⊥Grad of gradients, tensor by tensor, or none; and momentum."""
        is_usual = options is None or (options.granularity, options.project) == ("tensor", "gradient")
        return is_usual and momentum > 0 and has_triton()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step; a closure computes gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        gradients = {parameter: self._gradient(parameter) for parameter in group["params"]}
        found = {parameter: gradient for parameter, gradient in gradients.items() if gradient is not None}
        pace = {"rate": group["lr"], "momentum": group["momentum"], "decay": group["weight_decay"]}
        key = [gradient.data_ptr() for gradient in found.values()], pace
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            self._captured.append(self._planned(found, pace))  # the graph reads its memory at every replay
            self._captured[-1].step_()
            return loss
        if found and self._plan[0] != key:
            self._plan = key, self._planned(found, pace)
        if found:
            self._plan[1].step_()
        return loss

    def _gradient(self, parameter: Tensor) -> Tensor | None:
        """In the memory order of its weight."""
        gradient = self._copies.get(parameter, parameter).grad
        if gradient is not None and flattened(gradient, parameter) is None:
            gradient = torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient)
        return gradient

    def _planned(self, gradients: Mapping[Tensor, Tensor], pace: Mapping[str, float]) -> Any:
        from .engine.stepping import Stepped, StepPlan  # Triton is heavy, and absent where there is no CUDA

        tensors = [
            Stepped(
                gradient,
                parameter,
                self.state[parameter]["momentum_buffer"],
                self._copies.get(parameter),
                id(parameter) in self._projected,
            )
            for parameter, gradient in gradients.items()
        ]
        return StepPlan(tensors, **pace, renormalize=self._options is None or self._options.renormalize)
