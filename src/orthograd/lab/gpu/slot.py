"""Training on a GPU: data, network and optimizer stay there, and a step is one replay of a CUDA graph.

A slot is a network with its graphs. Runs that differ only in their seed use it one after another, so graphs are
captured once. Several slots train concurrently, each on its stream, since one small network cannot fill a GPU.
`GPU.slot` lends them.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from ... import optim
from ...attachment import attachment_of
from ...engine.compilation import compiled_ahead
from ...imports import has_triton
from ...options import Options
from ...partition import Where
from ..data import Dataset
from ..training.batches import Draws, byte_table, in_one_launch, prepared
from ..training.config import Config
from ..training.layers import confined_to
from ..training.methods import method_named
from ..training.steps import one_hot, optimizer_of, rate_of, share_of, start_orthograd, statistics_for
from ..training.task import Task, initial_model
from .compilation import forward_and_loss

WARM_UP = 3  # steps before a capture, for libraries to initialize


class Slot:
    """A network and its optimizer at fixed GPU addresses, and the CUDA graphs of their steps."""

    seconds_between_checkpoints = 20.0
    """Saving a checkpoint takes as long as several epochs."""

    def __init__(self, config: Config, task: Task) -> None:
        if not torch.cuda.is_available():
            raise ValueError("expected a GPU for device cuda, got a machine or a PyTorch without one")
        self._config, self._method = config, method_named(config.method)
        self.stream = torch.cuda.Stream()
        self.model = network_on_gpu(config, task.dataset)
        if any(isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p for layer in self.model.modules()):
            warnings.warn("dropout on a GPU: runs share its random generator, so results do not repeat", stacklevel=2)
        self._has_kernels = getattr(self.model, "has_own_kernels", False)
        self._half = HalfWeights(self.model) if self._has_kernels and config.precision == "bf16" else None
        self._dtype = torch.bfloat16 if self._half else torch.float32
        self.optimizer = optimizer_on_gpu(config, self.model, self._half.by_weight if self._half else {})
        self._total = torch.zeros((), device="cuda")
        self._graphs: dict[tuple[int, bool], _Step] = {}
        """By the number of images, and whether ⊥Grad has started."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make its stream the current one inside the block, and wait for it at the end."""
        with torch.cuda.stream(self.stream):
            yield
            self.stream.synchronize()

    def capture(self, config: Config, task: Task) -> None:
        """Load the images of a run, and capture the CUDA graphs that its steps still need.

        There is one for a whole batch, and one for the smaller last batch of an epoch unless that is dropped; for a
        method in which ⊥Grad starts later, also both without it.
        """
        self._dataset, self._images, self._targets = task.dataset, task.images.cuda().contiguous(), one_hot(task).cuda()
        self._table = byte_table(task.dataset, self._images, self._dtype)
        self._sizes = config.batches_of(len(self._targets))
        if self._graphs:
            return  # the runs of a slot have as many images
        if self._method.start:
            self._capture(sorted({*self._sizes}), has_started=False)
            start_orthograd(self._method, self.model, self.optimizer)
        self._capture(sorted({*self._sizes}), has_started=True)

    def begin(self, config: Config, task: Task) -> None:
        """Reset the weights to the initial ones of a run, and the optimizer's state to zero."""
        for state in self.optimizer.state.values():  # before the weights, which may be a part of it
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        initial = initial_model(config, task.dataset).state_dict()
        for name, value in self.model.state_dict().items():
            value.copy_(initial[name])
        self.model.train()

    def epoch(self, draws: Draws, number: int = 0) -> float:
        """See `Steps.epoch`."""
        images, targets = self._prepared(draws.to(self._images.device))
        self._total.zero_()
        if self._half:
            self._half.follow()  # the weights may have been set since the last epoch
        for batch, wanted in zip(images.split(self._sizes), targets.split(self._sizes), strict=True):
            step = self._graphs[len(batch), number >= self._method.start]
            step.images.copy_(batch)
            step.targets.copy_(wanted)
            step.graph.replay()
        return float(self._total) / len(targets)

    def _prepared(self, draws: Draws) -> tuple[Tensor, Tensor]:
        if self._table is None or draws.partners is not None:
            images, targets = prepared(self._dataset, self._images, self._targets, draws)
            return images.contiguous(memory_format=torch.channels_last), targets
        return in_one_launch(self._images, draws, self._table), self._targets[draws.rows]

    def _capture(self, counts: list[int], *, has_started: bool) -> None:
        steps = {count: self._step_of(count) for count in counts}
        make_kernels(self.model, *(take for _, take in steps.values()))
        for count, (step, take) in steps.items():
            for _ in range(WARM_UP):
                take()
            self.stream.synchronize()
            with torch.cuda.graph(step.graph, stream=self.stream, capture_error_mode="thread_local"):
                take()
            self._graphs[count, has_started] = step

    def _step_of(self, count: int) -> tuple[_Step, Callable[[], None]]:
        """Buffers for a batch of ``count`` images, and a function that takes a step with them."""
        draws = Draws.of(self._config, self._method, count, torch.Generator())
        images, targets = self._prepared(draws.to(self._images.device))  # compiles its kernel
        step = _Step(images.clone(memory_format=torch.channels_last).to(self._dtype), targets)
        # Compiling does not pay for the smaller last batch of an epoch, nor for a network with its own kernels.
        is_compiled = count == self._config.batch_size and not self._has_kernels
        compute = forward_and_loss(self._config, is_compiled=is_compiled)

        def take() -> None:
            self._forget_gradients()
            with statistics_for(self._config, self.model, count):
                value = compute(self._half or self.model, step.images, step.targets, self._method)
            value.backward(share_of(self._config, value, count))  # type: ignore[no-untyped-call]
            self._step()
            self._total.add_(value.detach(), alpha=count)

        return step, take

    def _forget_gradients(self) -> None:
        self.optimizer.zero_grad()
        if self._half:
            self._half.forget_gradients()

    def _step(self) -> None:
        """Step the optimizer; if it does not know the bfloat16 copies, hand over gradients and weights."""
        if self._half is None or isinstance(self.optimizer, optim.SGD):
            self.optimizer.step()
        else:
            self._half.hand_gradients_over()
            self.optimizer.step()
            self._half.follow()


@dataclasses.dataclass(eq=False)
class _Step:
    """Buffers of a batch, and the graph that trains on it."""

    images: Tensor
    targets: Tensor
    graph: torch.cuda.CUDAGraph = dataclasses.field(default_factory=torch.cuda.CUDAGraph)


class HalfWeights:
    """bfloat16 copies of convolution weights that a network computes with; its own weights stay in float32.

    All are cast at once: one by one, in both directions, takes about forty launches.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._whole = {
            name: value for name, value in model.named_parameters() if value.ndim > 2 and value.requires_grad
        }
        self._half = {name: value.detach().to(torch.bfloat16).requires_grad_() for name, value in self._whole.items()}

    @property
    def by_weight(self) -> dict[Tensor, Tensor]:
        """Each copy by its weight."""
        return dict(zip(self._whole.values(), self._half.values(), strict=True))

    def __call__(self, images: Tensor) -> Tensor:
        """The network's logits, computed with the copies."""
        logits: Tensor = functional_call(self._model, self._half, (images.to(torch.bfloat16),))
        return logits

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the current weights."""
        torch._foreach_copy_([*self._half.values()], [*self._whole.values()])

    def forget_gradients(self) -> None:
        """Drop the gradients of the copies, like an optimizer's ``zero_grad``."""
        for copy in self._half.values():
            copy.grad = None

    @torch.no_grad()
    def hand_gradients_over(self) -> None:
        """Copy their gradients to the weights, in float32."""
        learning = [(whole, copy.grad) for whole, copy in self.by_weight.items() if copy.grad is not None]
        for whole, _ in learning:
            whole.grad = torch.empty_like(whole)
        torch._foreach_copy_([whole.grad for whole, _ in learning], [gradient for _, gradient in learning])  # type: ignore[misc]


def make_kernels(model: nn.Module, *work: Callable[[], object]) -> None:
    """Compile the kernels that the work launches, in parallel, for networks with their own; its results are void."""
    if getattr(model, "has_own_kernels", False):
        with compiled_ahead():
            for each in work:
                each()


def optimizer_on_gpu(config: Config, model: nn.Module, copies: Mapping[Tensor, Tensor]) -> Optimizer:
    """The optimizer of a config, fused into one pass over memory where possible.

    ``copies`` are weights in bfloat16. The fused optimizer steps them, and the weights of the model are their master
    weights. Others step the weights of the model.
    """
    method, parameters = method_named(config.method), [*model.parameters()]
    options = None if method.orthogonal is None else Options(**method.orthogonal)
    is_dense = not any(getattr(layer, "sparse", False) for layer in model.modules())
    is_plain = config.optimizer == "sgd" and is_dense and not (method.decayed or method.start or method.limited)
    is_usual = options is None or (options.granularity, options.project) == ("tensor", "gradient")
    are_usual = all(parameter.dtype == torch.float32 for parameter in parameters)
    if not (is_plain and is_usual and are_usual and has_triton()):
        return optimizer_of(config, model)
    where = confined_to(model, method.only) if method.only else None
    pace = {"lr": rate_of(config), "momentum": config.momentum, "weight_decay": config.weight_decay}
    return fused_sgd(parameters, copies, options, where, **pace)


def fused_sgd(
    weights: Iterable[Tensor],
    copies: Mapping[Tensor, Tensor],
    options: Options | None,
    where: Where | None = None,
    **pace: Any,
) -> optim.SGD:
    """`orthograd.optim.SGD` with ⊥Grad if there are options; it measures large gradients during the backward pass."""
    from .backward_statistics import BackwardStatistics  # imports Triton, which is slow to import and may be missing

    weight_of = {copies.get(weight, weight): weight for weight in weights}

    def is_chosen(name: str, parameter: Tensor) -> bool:
        return where is None or where(name, weight_of[parameter])

    # With master weights the step is fused or fails, also for weights that need none.
    chosen = dataclasses.asdict(options or Options())
    optimizer = optim.SGD(weight_of, master_weights=True, where=is_chosen, **chosen, **pace)
    for weight, copy in copies.items():
        optimizer.state[copy]["master_weight"] = weight.detach()
    handle = attachment_of(optimizer)
    assert handle is not None
    if options is None:
        handle.remove()
        return optimizer
    segments = chain.from_iterable(handle.partition.segments(optimizer.param_groups).values())
    projected = {parameter: weight_of[parameter] for parameter in chain.from_iterable(segments)}
    optimizer.corrections = BackwardStatistics(projected, renormalize=options.renormalize)
    return optimizer


def network_on_gpu(config: Config, data: Dataset) -> nn.Module:
    """The network of a config as slots use it: channels last, and BatchNorm without its batch counter.

    The counter costs one kernel per layer and step, and with a fixed momentum it is not used.
    """
    model = initial_model(config, data).cuda().train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is not None:
            layer.num_batches_tracked = None
    return model


def is_full(error: RuntimeError) -> bool:
    """True if the GPU ran out of memory, which CUDA's libraries report in other words than PyTorch.

    >>> is_full(RuntimeError("CUDNN_STATUS_ALLOC_FAILED")), is_full(RuntimeError("expected 3 channels"))
    (True, False)
    """
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "alloc_failed" in words
