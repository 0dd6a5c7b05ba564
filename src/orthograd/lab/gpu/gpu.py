"""One GPU as an object: opened, passed to whoever uses it, and closed."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import torch

from ..training.config import CHOICES, Config
from ..training.task import Task
from .concurrency import SIZES, Trials
from .slot import Slot, is_full

T = TypeVar("T")
Key = tuple[Config, int]
Flags = tuple[bool, bool, bool, bool]


class GPU:
    """A GPU while it is open: its precision, its slots, and what the runs on it share.

    The precision is "float32", "tf32" as in PyTorch's defaults (convolutions in TF32, matrix products in float32), or
    "bf16" by autocast. Convolutions use deterministic algorithms, so concurrent runs do not change the bits of a run.
    PyTorch's flags for this hold for the whole process: opening a GPU sets them, closing it restores them, and a
    process has one open GPU at a time.

    >>> with GPU("tf32") as gpu:
    ...     torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    (True, True)
    """

    _opened: ClassVar[GPU | None] = None
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, precision: str, make_slot: Callable[[Config, Task], Slot] = Slot) -> None:
        if precision not in CHOICES["precision"]:
            raise ValueError(f"expected a precision among {', '.join(CHOICES['precision'])}, got {precision}")
        self.precision = precision
        self.setting_up = threading.RLock()
        """Held while something is compiled or captured: one thread at a time."""
        self.evaluating = threading.Lock()
        """Held by the one run that predicts. Runs that start together end together: evaluated one after another, they
        fall out of step, and the others train meanwhile."""
        self.diagnosing = threading.Lock()
        """Held by the one run that is diagnosed: its thousands of small launches would make threads queue."""
        self._make_slot = make_slot
        self._free: dict[Key, list[Slot]] = {}
        self._lent = self._returned = 0
        self._changed = threading.Condition()
        self._fastest: dict[Key, int] = {}
        self._images: tuple[Hashable, Any] | None = None

    def __enter__(self) -> GPU:
        with GPU._opening:
            if GPU._opened is not None:
                raise ValueError(
                    f"expected one open GPU in a process, got a second one in {self.precision} beside the one in "
                    f"{GPU._opened.precision}: pass that one on, or close it first"
                )
            GPU._opened = self
        self._before = _flags()
        _set_flags(self.precision != "float32", False, True, False)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._images = None
            self.drop_slots()
        finally:
            _set_flags(*self._before)
            GPU._opened = None

    @contextmanager
    def slot(self, config: Config, task: Task, *, waits: bool = False) -> Iterator[Slot]:
        """A slot with captured graphs and the run's initial weights; inside the block its stream is the current one.

        With ``waits``, a run on a full GPU waits until another returns its slot. A holder of slots must not wait.
        """
        if config.precision != self.precision:
            raise ValueError(
                f"expected a run in {self.precision}, the precision of its GPU, got one in {config.precision}"
            )
        key = dataclasses.replace(config, seed=0, epochs=1), len(task.labels)
        slot = self._ready(key, config, task, waits)
        try:
            with slot.current():
                yield slot
            with self._changed:  # after an error it is not lent again
                self._free.setdefault(key, []).append(slot)
        finally:
            del slot
            with self._changed:
                self._lent, self._returned = self._lent - 1, self._returned + 1
                self._changed.notify_all()

    def _ready(self, key: Key, config: Config, task: Task, waits: bool) -> Slot:
        while True:
            with self.setting_up:
                with self._changed:  # a slot returned from here on is a reason to try again
                    lent, returned = self._lent, self._returned
                for is_last in (False, True):
                    try:
                        return self._begun(key, config, task)
                    except RuntimeError as error:
                        if not is_full(error) or (is_last and not (waits and lent)):
                            raise
                    self.drop_slots()  # perhaps of other methods, which makes room
            with self._changed:  # without `setting_up`, which runs need to return slots
                while self._returned == returned:
                    self._changed.wait()

    def _begun(self, key: Key, config: Config, task: Task) -> Slot:
        with self._changed:
            free = self._free.get(key)
            slot = free.pop() if free else None
        slot = slot or self._make_slot(config, task)
        with slot.current():
            slot.capture(config, task)  # a new slot's CUDA graphs: a used one has them
            slot.begin(config, task)
        with self._changed:
            self._lent += 1
        return slot

    def drop_slots(self) -> None:
        """Free the memory of slots that no run uses."""
        with self._changed:
            self._free.clear()
        gc.collect()  # an optimizer and its attachment refer to each other
        torch.cuda.empty_cache()

    def fastest_concurrency(self, config: Config, most: int = SIZES[-1]) -> int:
        """Fastest number of concurrent runs like this one, up to ``most``; measured once per network.

        Methods and seeds do not matter here. The runs reuse the slots of the measurement.
        """
        most = min(most, SIZES[-1])
        if most == 1:
            return 1
        key = config.network, most
        if key not in self._fastest:
            self._fastest[key] = Trials(self.slot, config, Task.of(config), most).fastest
        return self._fastest[key]

    def evaluation_images(self, key: Hashable, make: Callable[[], T]) -> T:
        """Images under this key, made once and kept until the GPU is closed; only one key at a time, to save memory.

        The caller holds `evaluating`.
        """
        if self._images is None or self._images[0] != key:
            self._images = None
            self._images = key, make()
        images: T = self._images[1]
        return images

    def replayed(self, compute: Callable[[], T]) -> Callable[[], T]:
        """The computation as a CUDA graph: launching hundreds of small kernels takes longer than running them.

        Each replay overwrites the last result. PyTorch's default stream cannot be captured: use another.
        """
        graph = torch.cuda.CUDAGraph()
        with self.setting_up:  # no other thread enters `torch.cuda.graph`, which waits for the GPU
            compute()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = compute()
            finally:
                graph.capture_end()

        def replay() -> T:
            graph.replay()
            return result

        return replay


def _flags() -> Flags:
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return convolutions.allow_tf32, products.allow_tf32, convolutions.deterministic, convolutions.benchmark


def _set_flags(convolutions: bool, products: bool, is_deterministic: bool, tries: bool) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    if torch.backends.cuda.matmul.allow_tf32 != products:  # True only where the environment sets it
        torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = is_deterministic, tries
