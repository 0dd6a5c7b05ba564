"""Chooses an engine for pairs of gradient and weight, and reuses its plans from step to step."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress
from operator import attrgetter
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..imports import has_triton
from ..projection import as_real, orthogonal_gradient, rounding_of
from .compilation import is_capturing, stream_of
from .cpu import CpuPlan
from .dense import DensePlan, DenseRowsPlan
from .plan import Pair, Plan, Segment
from .sharded import ShardedPlan, SplitRowsPlan, has_whole_rows, local, mesh_of, widest

# Addresses of gradients repeat from step to step; this many sets are remembered.
REMEMBERED = 8
_LOCK = Lock()  # one for all projectors: a projector with a lock of its own could not be copied
CPU = torch.device("cpu")
Columns = tuple[list[Tensor | None], list[Tensor], list[int]]
"""Gradients, weights, and the lengths of the segments."""


class Addresses(NamedTuple):
    """The key of a memory layout on a CUDA device. Parameters without a gradient have no address and no strides.

    ``strides`` holds True for each gradient if all are contiguous. ``sizes`` are those of the weights: after
    `parameter.data = parameter.data[:n]` the address is the same. ``are_contiguous`` is of the weights too: a square
    one may be transposed. ``lengths`` are those of the segments.
    """

    gradients: list[int]
    has_gradient: list[bool]
    strides: list[Any]
    dtypes: list[torch.dtype]
    weights: list[int]
    sizes: list[int]
    are_contiguous: list[bool]
    lengths: list[int]

    def moves_to(self, other: Addresses) -> dict[int, int] | None:
        """The new address of a gradient by its old one; None if more changed, or an old one is shared."""
        if self[1:] != other[1:]:
            return None
        moves = dict(zip(self.gradients, other.gradients, strict=True))
        is_shared = len(moves) < len(self.gradients) and [moves[old] for old in self.gradients] != other.gradients
        return None if is_shared else moves


class Known(NamedTuple):
    """Addresses of tensors, and the plans made for them."""

    addresses: Addresses
    plans: list[Plan]


class Projector:
    """Projects gradients in place, and remembers their addresses on a CUDA device.

    A segment is a list of pairs (gradient, weight) that are projected as one vector; with ``rows`` every row of every
    tensor is a separate vector. Engines: "reference" (float64, slow), "torch" (any device), "triton" (CUDA), "auto"
    (the fastest that applies). Tensors with a memory layout that Triton cannot read are projected by torch.

    A projector is for the same tensors at every step. They may move, but their dtypes must stay the same.
    """

    def __init__(self, *, renormalize: bool = True, rows: bool = False, engine: str = "auto"):
        self.renormalize, self.rows, self.engine = renormalize, rows, engine
        self._remembered: list[Known] = []
        self._captured: list[list[Plan]] = []
        self._streams: set[int | None] = set()
        # The last segments of parameters, which are the same list in nearly every step; all in one list; and lengths.
        self._flat: tuple[Any, list[Tensor], list[int]] = None, [], []

    def project_(self, segments: Sequence[Segment]) -> None:
        """Project each gradient in place."""

        def columns() -> Columns:
            gradients, weights = zip(*chain.from_iterable(segments), strict=True)
            return list(gradients), list(weights), list(map(len, segments))

        self._project_(segments[0][0].weight if segments else None, columns, lambda: segments)

    def project_gradients_(self, segments: Sequence[Sequence[Tensor]], ready: Callable[[], Sequence[Segment]]) -> None:
        """Project the gradients of parameters in place.

        ``ready`` returns them as pairs, and may replace ``.grad``. It is not called if the gradients have the addresses
        of an earlier step on a CUDA device. The segments must not be changed in place.
        """
        if self._flat[0] is not segments:
            self._flat = segments, list(chain.from_iterable(segments)), list(map(len, segments))
        _, parameters, lengths = self._flat

        def columns() -> Columns:
            return [parameter.grad for parameter in parameters], parameters, lengths

        self._project_(parameters[0] if parameters else None, columns, ready)

    def _project_(
        self,
        first: Tensor | None,
        columns: Callable[[], Columns],
        ready: Callable[[], Sequence[Segment]],
    ) -> None:
        if first is None or not self._may_remember(first):
            self._project_anew_(ready())
            return
        addresses = addresses_of(*columns())
        with _LOCK:  # until the plans are launched: another thread could take them over
            self._streams.add(stream_of(first.device))
            if plans := self._known(addresses) or self._moved(addresses):
                self._run(plans)
                return
        plans = self._project_anew_(ready())
        if plans and _is_repeatable(plans):
            addresses = addresses_of(*columns())  # ready() may have replaced gradients
            if addresses is not None:
                with _LOCK:
                    self._remember(Known(addresses, plans))

    def _remember(self, known: Known) -> None:
        self._remembered = [*self._remembered[1 - REMEMBERED :], known]

    def _may_remember(self, weight: Tensor) -> bool:
        return self.engine == "triton" or (self.engine == "auto" and weight.is_cuda)

    def _known(self, addresses: Addresses | None) -> list[Plan] | None:
        """The plans of an earlier step with the same addresses; None if there was none."""
        return next((known.plans for known in reversed(self._remembered) if known.addresses == addresses), None)

    def _moved(self, addresses: Addresses | None) -> list[Plan] | None:
        """The plans of an earlier step, for gradients that have moved; None if more changed than their addresses.

        Once enough plans are remembered, the oldest are taken over instead of copied. Memory that is allocated on the
        device in every step moves the next gradients, so that their addresses would never repeat.
        """
        if addresses is None or is_capturing():
            return None
        for known in self._remembered:
            moves = known.addresses.moves_to(addresses)
            if moves is not None and (moved := self._plans_for(known, moves)):
                self._remember(Known(addresses, moved))
                return moved
        return None

    def _plans_for(self, known: Known, moves: dict[int, int]) -> list[Plan] | None:
        """Plans for moved gradients: copies of known ones, or these themselves, which are then forgotten."""
        in_place = (
            len(self._remembered) == REMEMBERED
            and known is self._remembered[0]
            # A graph reads its plans at each replay. Kernels on another stream may not have read theirs yet.
            and not any(plans is known.plans for plans in self._captured)
            and len(self._streams) == 1
        )
        if in_place:
            self._remembered = self._remembered[1:]
        moved = [plan for each in known.plans if (plan := each.moved(moves, in_place=in_place)) is not None]
        return moved if len(moved) == len(known.plans) else None

    @torch.no_grad()
    def _project_anew_(self, segments: Sequence[Segment]) -> list[Plan]:
        """Project each gradient in place with new plans, and return the plans."""
        if self.engine == "reference":
            for pairs in segments:
                _project_by_reference_(pairs, renormalize=self.renormalize, rows=self.rows)
            return []
        if segments and self.engine != "triton" and _is_plain_cpu(segments):
            plans = [self._plan(segments, segments, None, CPU, False)]
        else:
            plans = self._planned(segments)
        self._run(plans)
        return plans

    def _run(self, plans: list[Plan]) -> None:
        if is_capturing():
            self._captured.append(plans)  # the graph reads the memory of a plan at every replay
        for plan in plans:
            plan.project_()

    def _planned(self, segments: Sequence[Segment]) -> list[Plan]:
        """A plan for each batch of segments that fit together, in the same order on every rank."""
        batches: dict[Any, tuple[list[Segment], list[Segment]]] = defaultdict(lambda: ([], []))
        whole = widest({mesh for pairs in segments for _, weight in pairs if (mesh := mesh_of(weight)) is not None})
        for pairs in segments:
            parts = [_local(*pair) for pair in pairs]
            rounding = max(rounding_of(part.gradient.dtype) for part in parts)
            key = self._mesh(pairs, whole), rounding, _device(parts), self._is_for_triton(parts)
            batches[key][0].append(pairs)
            batches[key][1].append(parts)
        return [self._plan(*batch, mesh, *place) for (mesh, _, *place), batch in batches.items()]

    def _plan(
        self, whole: Sequence[Segment], parts: Sequence[Segment], mesh: Any, device: Any, is_triton: bool
    ) -> Plan:
        if self.rows and mesh is None:
            return (_launch().TritonRowsPlan if is_triton else DenseRowsPlan)(parts, renormalize=self.renormalize)
        if self.rows:
            return SplitRowsPlan(whole, parts, mesh, renormalize=self.renormalize)
        plan_class = _launch().TritonPlan if is_triton else CpuPlan if device == CPU else DensePlan
        if mesh is None:
            return plan_class(parts, renormalize=self.renormalize)
        return ShardedPlan(whole, parts, mesh, plan_class, renormalize=self.renormalize)

    def _mesh(self, pairs: Segment, whole: dict[Any, Any]) -> Any:
        """The mesh that the vectors are sharded over; None if this rank holds them whole."""
        meshes = {whole[mesh] for _, weight in pairs if (mesh := mesh_of(weight)) is not None}
        if len(meshes) > 1:
            raise ValueError(f"expected tensors projected as one vector to share one device mesh, got {meshes}")
        if not meshes or (self.rows and all(has_whole_rows(weight) for _, weight in pairs)):
            return None
        return meshes.pop()

    def _is_for_triton(self, pairs: Segment) -> bool:
        if self.engine == "torch":
            return False
        device = _device(pairs)
        if self.engine == "triton" and device == CPU and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError(
                "engine='triton' needs CUDA tensors, got CPU tensors; TRITON_INTERPRET=1 runs it slowly on the CPU"
            )
        is_wanted = self.engine == "triton" or (device is not None and device.type == "cuda" and has_triton())
        return is_wanted and device is not None and all(_launch().is_eligible(pair, self.rows) for pair in pairs)


def _project_by_reference_(pairs: Segment, *, renormalize: bool, rows: bool) -> None:
    """Project by the reference implementation, all pairs as one vector."""
    if rows or len(pairs) == 1:
        for gradient, weight in pairs:
            _replace_(gradient, orthogonal_gradient(gradient, weight, renormalize=renormalize, rows=rows))
        return
    vectors = [torch.cat([as_real(tensor).flatten() for tensor in column]) for column in zip(*pairs, strict=True)]
    parts = orthogonal_gradient(*vectors, renormalize=renormalize).split([as_real(g).numel() for g, _ in pairs])
    for (gradient, _), part in zip(pairs, parts, strict=True):
        _replace_(as_real(gradient), part.view_as(as_real(gradient)))


def _replace_(gradient: Tensor, projected: Tensor) -> None:
    """Copy into the gradient, clamped so that finite values stay finite in its dtype."""
    if not gradient.is_complex():
        largest = torch.finfo(gradient.dtype).max
        projected = torch.where(gradient.isfinite(), projected.clamp(-largest, largest), projected)
    gradient.copy_(projected)


def _is_plain_cpu(segments: Sequence[Segment]) -> bool:
    """True for the common case of plain CPU tensors. Called at every step, so it must be cheap."""
    return all(
        type(g) is Tensor and g.is_cpu and w.is_cpu and g.shape == w.shape and g.is_floating_point()
        for pairs in segments
        for g, w in pairs
    )


def _is_repeatable(plans: Sequence[Plan]) -> bool:
    """True if the plans can be reused for tensors at the same addresses."""
    # While a graph is captured, plans take effect only at replay. None may be dropped meanwhile either: PyTorch would
    # record an event for freed pinned memory inside the capture, and fail on it later.
    return not is_capturing() and all(plan.holds_addresses for plan in plans)


def are_plain(tensors: Sequence[Tensor], dtypes: Iterable[torch.dtype]) -> bool:
    """True if their addresses identify the data: no DTensor, no lazy negation or conjugation. It loops in C."""
    is_usual = set(map(type, tensors)) <= {Tensor} and not any(dtype.is_complex for dtype in set(dtypes))
    return is_usual and not any(map(Tensor.is_neg, tensors))


def addresses_of(gradients: list[Tensor | None], weights: list[Tensor], lengths: list[int]) -> Addresses | None:
    """The key of a memory layout on a CUDA device; None if an address does not identify a gradient.

    Computed at every step, where it is most of the host's work: so it holds only what can change between steps, and
    loops in C.
    """
    has_gradient = [gradient is not None for gradient in gradients]
    present: list[Any] = gradients if all(has_gradient) else list(compress(gradients, has_gradient))
    dtypes = list(map(attrgetter("dtype"), present))
    if not are_plain(present, dtypes):
        return None
    try:
        strides: list[Any] = list(map(Tensor.is_contiguous, present))
        if not all(strides):
            strides = list(map(Tensor.stride, present))
        return Addresses(
            list(map(Tensor.data_ptr, present)),
            has_gradient,
            strides,
            dtypes,
            list(map(Tensor.data_ptr, weights)),
            list(map(Tensor.numel, weights)),
            list(map(Tensor.is_contiguous, weights)),
            lengths,
        )
    except (RuntimeError, ValueError):  # sparse and lazy tensors have no address
        return None


def _local(gradient: Tensor, weight: Tensor) -> Pair:
    """This rank's part of a pair, as real tensors."""
    for name in ("shape", "device"):
        if getattr(gradient, name) != getattr(weight, name):
            raise ValueError(
                f"expected a gradient with the {name} of its weight, {getattr(weight, name)}, "
                f"got {getattr(gradient, name)}"
            )
    return Pair(as_real(local(gradient)), as_real(local(weight)))


def _device(pairs: Segment) -> torch.device | None:
    """The device of all pairs; None if there are several."""
    devices = {pair.gradient.device for pair in pairs}
    return devices.pop() if len(devices) == 1 else None


def _launch() -> Any:
    # Imported on demand: Triton is slow to import, and often absent without CUDA.
    from . import launch

    return launch
