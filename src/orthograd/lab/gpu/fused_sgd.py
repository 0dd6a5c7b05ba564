"""SGD and ⊥Grad in one step, for training that is bound by GPU memory bandwidth.

The step is that of `orthograd.optim.SGD`. Added here for training in CUDA graphs: weights with copies in lower
precision, and gradients that are measured during the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import SGD

from ...engine.compilation import is_capturing
from ...engine.dense import flattened
from ...imports import has_triton
from ...optim.fused_plans import count_change
from ...options import Options
from ...partition import Partition, Where

if TYPE_CHECKING:
    from ...engine.step_plan import Stepped, StepPlan
    from .backward_statistics import BackwardStatistics


class FusedSGD(SGD):
    """`torch.optim.SGD` with momentum for float32 weights on one GPU, with ⊥Grad if ``options`` are given.

    ``copies`` has weights in another dtype, which each step updates: the gradient of such a parameter is that of its
    copy. Large gradients are measured during the backward pass. A ``rate`` that is a tensor on the GPU may change, and
    CUDA graphs use the new value. The state is that of `torch.optim.SGD`. It is made for training in this package: it
    has one parameter group and cannot be copied.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        rate: float | Tensor,
        momentum: float,
        decay: float,
        *,
        options: Options | None = None,
        where: Where | None = None,
        copies: Mapping[Tensor, Tensor] | None = None,
    ):
        super().__init__(parameters, rate, momentum, weight_decay=decay)
        self._copies, self._options = dict(copies or {}), options
        segments = Partition(options, where).segments(self.param_groups).get(options, []) if options else []
        projected = [parameter for segment in segments for parameter in segment]
        self._projected = {id(parameter) for parameter in projected}
        self._statistics = self._measured_in_backward(projected) if projected else None
        self._last: tuple[Any, StepPlan] | None = None
        self._captured: list[StepPlan] = []

    @staticmethod
    def serves(parameters: Iterable[Tensor], options: Options | None, momentum: float) -> bool:
        """True if it supports these settings: ⊥Grad of gradients per tensor, or none; momentum; and float32."""
        is_usual = options is None or (options.granularity, options.project) == ("tensor", "gradient")
        are_usual = all(parameter.dtype == torch.float32 for parameter in parameters)
        return is_usual and are_usual and momentum > 0 and has_triton()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step; a closure computes gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        if unknown := [name for name in ("nesterov", "maximize", "dampening") if group[name]]:
            raise ValueError(f"expected plain momentum, got {', '.join(unknown)}")
        tensors = [stepped for parameter in group["params"] if (stepped := self._stepped(parameter)) is not None]
        if self._statistics:
            self._statistics.join()
        if tensors:
            rate = group["lr"] if isinstance(group["lr"], Tensor) else float(group["lr"])
            self._plan_for(tensors, rate).step_((rate, float(group["momentum"]), float(group["weight_decay"])))
        count_change([each.weight for each in tensors])  # its statistics are of the weights before
        return loss

    def _measured_in_backward(self, projected: Iterable[Tensor]) -> BackwardStatistics:
        from .backward_statistics import (
            BackwardStatistics,
        )  # imports Triton, which is slow to import and may be missing

        leaves = {parameter: self._copies.get(parameter, parameter) for parameter in projected}
        return BackwardStatistics(leaves, renormalize=self._options is None or self._options.renormalize)

    def _stepped(self, parameter: Tensor) -> Stepped | None:
        """A parameter with its gradient, momentum and copy in the same memory order; None without a gradient."""
        from ...engine.step_plan import Stepped

        copy, state = self._copies.get(parameter), self.state[parameter]
        gradient = (parameter if copy is None else copy).grad
        if gradient is None:
            return None
        correction = self._statistics.correction_of(parameter, gradient) if self._statistics else None
        if flattened(gradient, parameter) is None:
            gradient = torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient)
        if state.get("momentum_buffer") is None:  # None before the first step, as in torch
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return Stepped(
            gradient,
            parameter,
            state["momentum_buffer"],
            copy=copy,
            correction=correction,
            is_projected=id(parameter) in self._projected,
        )

    def _plan_for(self, tensors: list[Stepped], rate: float | Tensor) -> StepPlan:
        """The last plan if all addresses are the same; during a capture a new one, kept for the graph's replays."""
        from ...engine.step_plan import Rule, StepPlan

        is_captured, reads_rate = is_capturing(), isinstance(rate, Tensor)
        key = reads_rate, [tensor.data_ptr() for each in tensors for tensor in each.in_memory]
        if self._last is not None and self._last[0] == key and not is_captured:
            return self._last[1]
        rule = Rule("momentum", renormalize=self._options is None or self._options.renormalize)
        plan = StepPlan(tensors, rule, reads_rate=reads_rate, earlier=self._last and self._last[1])
        if is_captured:
            self._captured.append(plan)
        else:
            self._last = key, plan
        return plan
