"""Training on a GPU: data, network and optimizer stay there, and a step is one replay of a CUDA graph.

A slot is a network with its graphs. Runs that differ in nothing but their seed use it one after another, so graphs
are captured once; several slots train side by side, each on its stream, since one small network cannot fill a GPU.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...engine.compilation import compiled_ahead
from ...options import Options
from ..data import Dataset
from ..training.arms import arm_named
from ..training.config import Config
from ..training.draws import Draws
from ..training.layers import confined_to
from ..training.objective import optimizer_of, rate_of
from ..training.preparation import byte_table, in_one_launch, prepared
from ..training.steps import one_hot
from ..training.task import Task, initial_model
from .compilation import SETTING_UP, forward_and_loss
from .fused_sgd import FusedSGD
from .half_weights import HalfWeights

T = TypeVar("T")
Kind = tuple[Config, int]
WARM_UP = 3  # steps before a capture, in which libraries set themselves up


class Slot:
    """A network and its optimizer at fixed places in the GPU's memory, and the graphs of their steps."""

    seconds_between_checkpoints = 20.0
    """A checkpoint takes as long as some epochs."""

    def __init__(self, config: Config, task: Task) -> None:
        self._config, self._arm = config, arm_named(config.arm)
        self.stream = torch.cuda.Stream()
        self.model = network_on_gpu(config, task.dataset)
        if any(isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p for layer in self.model.modules()):
            warnings.warn("dropout on a GPU: runs share its dice, and none ends the same twice", stacklevel=2)
        self._has_kernels = getattr(self.model, "has_own_kernels", False)
        self._half = HalfWeights(self.model) if self._has_kernels and config.precision == "bf16" else None
        self._dtype = torch.bfloat16 if self._half else torch.float32
        self.optimizer = optimizer_on_gpu(config, self.model, self._half.by_weight if self._half else {})
        self._total = torch.zeros((), device="cuda")
        self._graphs: dict[int, _Step] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        """Its stream is the current one, and has done all of it after the block."""
        with torch.cuda.stream(self.stream):
            yield
            self.stream.synchronize()

    def begin(self, config: Config, task: Task) -> None:
        """Put the run of another seed in the place of the last one."""
        self._dataset, self._images, self._targets = task.dataset, task.images.cuda().contiguous(), one_hot(task).cuda()
        self._table = byte_table(task.dataset, self._images, self._dtype)
        size, rest = config.batch_size, len(self._targets) % config.batch_size
        self._capture(sorted({min(size, len(self._targets)), rest} - {0} - self._graphs.keys()))
        initial = initial_model(config, task.dataset).state_dict()
        for name, value in self.model.state_dict().items():
            value.copy_(initial[name])
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        self.model.train()

    def epoch(self, draws: Draws) -> float:
        """See `Steps.epoch`."""
        size = self._config.batch_size
        images, targets = self._prepared(draws.to(self._images.device))
        self._total.zero_()
        if self._half:
            self._half.follow()  # whatever has put other weights there
        for batch, wanted in zip(images.split(size), targets.split(size), strict=True):
            step = self._graphs[len(batch)]
            step.images.copy_(batch)
            step.targets.copy_(wanted)
            step.graph.replay()
        return float(self._total) / len(targets)

    def _prepared(self, draws: Draws) -> tuple[Tensor, Tensor]:
        if self._table is None or draws.partners is not None:
            images, targets = prepared(self._dataset, self._images, self._targets, draws, self._config.batch_size)
            return images.contiguous(memory_format=torch.channels_last), targets
        return in_one_launch(self._images, draws, self._table), self._targets[draws.rows]

    def _capture(self, counts: list[int]) -> None:
        steps = {count: self._step_of(count) for count in counts}
        make_kernels(self.model, *(take for _, take in steps.values()))
        for count, (step, take) in steps.items():
            for _ in range(WARM_UP):
                take()
            self.stream.synchronize()
            with torch.cuda.graph(step.graph, stream=self.stream, capture_error_mode="thread_local"):
                take()
            self._graphs[count] = step

    def _step_of(self, count: int) -> tuple[_Step, Callable[[], None]]:
        """Where a step with so many images has its batch, and what it does."""
        draws = Draws.of(self._config, self._arm, count, torch.Generator())
        images, targets = self._prepared(draws.to(self._images.device))  # its kernel is compiled while nothing else is
        step = _Step(images.clone(memory_format=torch.channels_last).to(self._dtype), targets)
        # The last, smaller batch of an epoch is not worth a compilation; nor is a network that has kernels of its own.
        is_compiled = count == self._config.batch_size and not self._has_kernels
        compute = forward_and_loss(self._config, is_compiled=is_compiled)

        def take() -> None:
            self._forget_gradients()
            value = compute(self._half or self.model, step.images, step.targets, self._arm)
            value.backward()  # type: ignore[no-untyped-call]
            self._step()
            self._total.add_(value.detach(), alpha=count)

        return step, take

    def _forget_gradients(self) -> None:
        self.optimizer.zero_grad()
        if self._half:
            self._half.forget_gradients()

    def _step(self) -> None:
        """Of the optimizer, with gradients from the weights in bfloat16 where those are used, which then follow."""
        if self._half is None or isinstance(self.optimizer, FusedSGD):
            self.optimizer.step()
        else:
            self._half.hand_gradients_over()
            self.optimizer.step()
            self._half.follow()


@dataclasses.dataclass(eq=False)
class _Step:
    """Where a batch is put, and the graph that learns from it."""

    images: Tensor
    targets: Tensor
    graph: torch.cuda.CUDAGraph = dataclasses.field(default_factory=torch.cuda.CUDAGraph)


class Slots:
    """The slots of this process, lent to one run at a time."""

    def __init__(self, make: Callable[[Config, Task], Slot] = Slot) -> None:
        self._make = make
        self._free: dict[Kind, list[Slot]] = {}
        self._lent = self._returned = 0
        self._changed = threading.Condition()

    @contextmanager
    def lent(self, config: Config, task: Task, *, waits: bool = False) -> Iterator[Slot]:
        """A slot at the beginning of the run; inside the block its stream is the current one.

        On a full GPU a run may wait until another one gives its slot back; what holds some itself must not.
        """
        kind = dataclasses.replace(config, seed=0, epochs=1), len(task.labels)
        slot = self._had(kind, config, task, waits)
        try:
            with slot.current():
                yield slot
            with self._changed:  # after an error it is not lent again
                self._free.setdefault(kind, []).append(slot)
        finally:
            del slot
            with self._changed:
                self._lent, self._returned = self._lent - 1, self._returned + 1
                self._changed.notify_all()

    def _had(self, kind: Kind, config: Config, task: Task, waits: bool) -> Slot:
        while True:
            with SETTING_UP:
                with self._changed:  # slots may come back from here on, and then there is no reason to give up
                    lent, returned = self._lent, self._returned
                for is_last in (False, True):
                    try:
                        return self._begun(kind, config, task)
                    except RuntimeError as error:
                        if not is_full(error) or (is_last and not (waits and lent)):
                            raise
                    self.drop()  # of other arms, perhaps: then there is room
            with self._changed:  # not while setting up is held, which those that are to come back need as well
                while self._returned == returned:
                    self._changed.wait()

    def _begun(self, kind: Kind, config: Config, task: Task) -> Slot:
        with self._changed:
            free = self._free.get(kind)
            slot = free.pop() if free else None
        slot = slot or self._make(config, task)
        with slot.current():
            slot.begin(config, task)
        with self._changed:
            self._lent += 1
        return slot

    def drop(self) -> None:
        """Give the memory back of those that nobody has."""
        with self._changed:
            self._free.clear()
        gc.collect()  # an optimizer and what is attached to it know each other
        torch.cuda.empty_cache()


SLOTS = Slots()


def make_kernels(model: nn.Module, *work: Callable[[], object]) -> None:
    """All at once that the work launches, whose results are void; for networks that have kernels of their own."""
    if getattr(model, "has_own_kernels", False):
        with compiled_ahead():
            for each in work:
                each()


def replayed(compute: Callable[[], T]) -> Callable[[], T]:
    """The same as a CUDA graph: launching hundreds of small kernels anew takes longer than they do.

    Results lie where the last ones lay. Not on the stream that PyTorch begins with, which has no graphs.
    """
    graph = torch.cuda.CUDAGraph()
    with SETTING_UP:  # nobody waits for the whole GPU meanwhile, as `torch.cuda.graph` does first
        compute()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            found = compute()
        finally:
            graph.capture_end()

    def replay() -> T:
        graph.replay()
        return found

    return replay


def optimizer_on_gpu(config: Config, model: nn.Module, copies: Mapping[Tensor, Tensor]) -> Optimizer:
    """The optimizer of a config, in one pass over memory if it can be.

    ``copies`` are weights in fewer bits, which only such an optimizer takes care of.
    """
    arm, parameters = arm_named(config.arm), [*model.parameters()]
    options = None if arm.orthogonal is None else Options(**arm.orthogonal)
    is_dense = not any(getattr(layer, "sparse", False) for layer in model.modules())
    is_plain = config.optimizer == "sgd" and is_dense and not arm.decayed
    if not is_plain or not FusedSGD.serves(parameters, options, config.momentum):
        return optimizer_of(config, model)
    where = confined_to(model, arm.only) if arm.only else None
    rate, momentum, decay = rate_of(config), config.momentum, config.weight_decay
    return FusedSGD(parameters, rate, momentum, decay, options=options, where=where, copies=copies)


def network_on_gpu(config: Config, data: Dataset) -> nn.Module:
    """The network of a config as slots have it: channels last, and batch norms that do not count their batches.

    That would be one kernel each and step, and with a fixed momentum the count is not used.
    """
    model = initial_model(config, data).cuda().train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is not None:
            layer.num_batches_tracked = None
    return model


def is_full(error: RuntimeError) -> bool:
    """Whether there was no memory left: CUDA and its libraries say so in other words than PyTorch.

    >>> is_full(RuntimeError("CUDNN_STATUS_ALLOC_FAILED")), is_full(RuntimeError("expected 3 channels"))
    (True, False)
    """
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "alloc_failed" in words
