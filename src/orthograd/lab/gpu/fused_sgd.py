"""SGD and ⊥Grad in one step, for training that is bound by the memory of a GPU.

⊥Grad by `attach` works with any optimizer, and so hands its result over in memory. Here nothing is handed over.
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
    """`torch.optim.SGD` with momentum, for weights in float32 on one GPU, with ⊥Grad where ``options`` are given.

    ``copies`` has weights in another dtype, which follow each step: where a parameter has one, its gradient is that of
    the copy. Large gradients are measured beside the backward pass that makes them. A ``rate`` in the memory of the GPU
    may change there, and graphs see it. The state is that of `torch.optim.SGD`. Made for training in this package,
    where it lives with its graphs: it has one param group, and is not copied.
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
        """Whether it can do what is wanted: ⊥Grad of gradients, tensor by tensor, or none; momentum; and float32."""
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
        from .step_plan import BackwardStatistics  # with Triton, which is heavy, and absent where there is no CUDA

        leaves = {parameter: self._copies.get(parameter, parameter) for parameter in projected}
        return BackwardStatistics(leaves, renormalize=self._options is None or self._options.renormalize)

    def _stepped(self, parameter: Tensor) -> Stepped | None:
        """All that belongs to a parameter, in the order of its memory; None if it has no gradient."""
        from .step_plan import Stepped

        copy, state = self._copies.get(parameter), self.state[parameter]
        gradient = (parameter if copy is None else copy).grad
        if gradient is None:
            return None
        is_projected = id(parameter) in self._projected
        correction = self._statistics.correction_of(parameter, gradient) if self._statistics else None
        if flattened(gradient, parameter) is None:
            gradient = torch.empty_like(parameter, dtype=gradient.dtype).copy_(gradient)
        if state.get("momentum_buffer") is None:  # as torch leaves it before the first step
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return Stepped(gradient, parameter, state["momentum_buffer"], copy, is_projected, correction)

    def _plan_for(self, tensors: list[Stepped], rate: float | Tensor, momentum: float, decay: float) -> StepPlan:
        """The last one where all lies as it did; while a graph is captured a new one, which is kept for its replays."""
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
