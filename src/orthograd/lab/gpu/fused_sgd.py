"""SGD and ⊥Grad in one step, for training that is bound by GPU memory bandwidth.

⊥Grad by `attach` works with any optimizer, and so writes the projected gradients to memory. The fused step does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import SGD

from ...engine.compilation import has_triton, is_capturing
from ...engine.dense import flattened
from ...options import Options
from ...partition import Partition, Where

if TYPE_CHECKING:
    from .step_plan import BackwardStatistics, Stepped, StepPlan


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
            self._plan_for(tensors, group["lr"], group["momentum"], group["weight_decay"]).step_()
        return loss

    def _measured_in_backward(self, projected: Iterable[Tensor]) -> BackwardStatistics:
        from .step_plan import BackwardStatistics  # imports Triton, which is slow to import and may be missing

        leaves = {parameter: self._copies.get(parameter, parameter) for parameter in projected}
        return BackwardStatistics(leaves, renormalize=self._options is None or self._options.renormalize)

    def _stepped(self, parameter: Tensor) -> Stepped | None:
        """A parameter with its gradient, momentum and copy in the same memory order; None without a gradient."""
        from .step_plan import Stepped

        copy, state = self._copies.get(parameter), self.state[parameter]
        gradient = (parameter if copy is None else copy).grad
        if gradient is None:
            return None
        is_projected = id(parameter) in self._projected
        correction = self._statistics.correction_of(parameter, gradient) if self._statistics else None
        if flattened(gradient, parameter) is None:
            gradient = torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient)
        if state.get("momentum_buffer") is None:  # None before the first step, as in torch
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return Stepped(gradient, parameter, state["momentum_buffer"], copy, is_projected, correction)

    def _plan_for(self, tensors: list[Stepped], rate: float | Tensor, momentum: float, decay: float) -> StepPlan:
        """The last plan if all addresses are the same; during a capture a new one, kept for the graph's replays."""
        from .step_plan import StepPlan

        is_captured = is_capturing()
        places = [tensor.data_ptr() for each in tensors for tensor in each[:4] if tensor is not None]
        key = places, rate.data_ptr() if isinstance(rate, Tensor) else rate, momentum, decay
        if self._last is not None and self._last[0] == key and not is_captured:
            return self._last[1]
        renormalize = self._options is None or self._options.renormalize
        plan = StepPlan(tensors, rate=rate, momentum=momentum, decay=decay, renormalize=renormalize)
        if is_captured:
            self._captured.append(plan)
        else:
            self._last = key, plan
        return plan
