"""Gradients and weights that are sharded over ranks (DTensor: FSDP2, tensor parallel, or both).

Each rank measures its own shards. Two small all-reduces per device mesh, for any number of tensors, give the moments of
the whole: first (B, B c) for the common c, then the residuals about it. No weight is gathered.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..projection import rounding_of
from .dense import change_rows_, row_moments
from .plan import Pair, Plan, Segment, VectorPlan, averaged, correction, residual_about, weighted


class ShardedPlan(VectorPlan):
    """Segments over one mesh; ``plan_class`` processes this rank's parts of them."""

    def __init__(
        self,
        whole: Sequence[Segment],
        parts: Sequence[Segment],
        mesh: Any,
        plan_class: type[VectorPlan],
        *,
        renormalize: bool,
    ):
        counted = [
            [part if is_counted(pair[1], mesh) else _emptied(part) for pair, part in zip(pairs, segment, strict=True)]
            for pairs, segment in zip(whole, parts, strict=True)
        ]
        self.mesh = mesh
        self.measured = plan_class(counted, renormalize=renormalize, merge=True)
        self.applied = plan_class(parts, renormalize=renormalize, merge=True)

    def measure(self) -> Tensor:
        """The table of moments of the whole, one row per segment, the same on every rank."""
        return reduced(self.measured.measure(), self.mesh.device_type, [_group(self.mesh)])

    def apply_(self, table: Tensor) -> None:
        """Project this rank's part of each gradient in place, given the moments of the whole."""
        self.applied.apply_(table)


class SplitRowsPlan(Plan):
    """Tensors whose rows are split over ranks (tensor parallel along the input), each row projected separately."""

    def __init__(self, whole: Sequence[Segment], parts: Sequence[Segment], mesh: Any, *, renormalize: bool):
        self.mesh, self.renormalize = mesh, renormalize
        self.by_dimensions: dict[tuple[int, ...], list[Pair]] = defaultdict(list)
        for pairs, segment in zip(whole, parts, strict=True):
            for (_, weight), part in zip(pairs, segment, strict=True):
                self.by_dimensions[_row_splitting_dimensions(weight, mesh)].append(part)

    def project_(self) -> None:
        """Project this rank's part of each gradient in place."""
        for dimensions, pairs in self.by_dimensions.items():
            groups = [self.mesh.get_group(dimension) for dimension in dimensions]
            tables = [row_moments(*pair) for pair in pairs]
            table = reduced(torch.cat(tables), self.mesh.device_type, groups)
            for pair, rows in zip(pairs, table.split([len(table) for table in tables]), strict=True):
                rounding = rounding_of(pair.gradient.dtype)
                change_rows_(*pair, correction(rows, renormalize=self.renormalize, rounding=rounding))


def is_dtensor(tensor: Any) -> bool:
    """True for a DTensor."""
    return _is_dtensor_class(type(tensor))  # type: ignore[arg-type]


@cache  # called several times per tensor and step
def _is_dtensor_class(tensor_class: type) -> bool:
    """True for DTensor classes. Imports nothing: if their module is not imported, no tensor has such a class."""
    modules = ("torch.distributed.tensor", "torch.distributed._tensor")  # the second is torch 2.4's
    classes = (getattr(sys.modules.get(name), "DTensor", None) for name in modules)
    return any(issubclass(tensor_class, base) for base in classes if base is not None)


def mesh_of(tensor: Any) -> Any:
    """The mesh over which a tensor is sharded; None if this rank holds it whole."""
    if is_dtensor(tensor) and any(map(_is_sharded, tensor.placements)):
        return tensor.device_mesh
    return None


def laid_out_like(parameter: Any, gradient: Any) -> Any:
    """The gradient with the placements of its parameter; itself if it has them already."""
    if not is_dtensor(gradient) or gradient.placements == parameter.placements:
        return gradient
    return gradient.redistribute(parameter.device_mesh, parameter.placements)


def widest(meshes: Collection[Any]) -> dict[Any, Any]:
    """For each mesh, the largest mesh that contains it, so that tensors on both are reduced together.

    With tensor parallel and FSDP, layers without a parallel plan are on FSDP's dimension of the mesh only. On the whole
    mesh they are replicated along the other dimension.
    """
    by_size = sorted(meshes, key=lambda mesh: mesh.ndim, reverse=True)
    return {mesh: next(other for other in by_size if _is_part(mesh, other)) for mesh in by_size}


def _is_part(mesh: Any, other: Any) -> bool:
    if mesh == other:
        return True
    names, others = mesh.mesh_dim_names or (None,), other.mesh_dim_names or ()
    return set(names) < set(others) and set(mesh.mesh.flatten().tolist()) <= set(other.mesh.flatten().tolist())


def local(tensor: Any) -> Any:
    """This rank's part of a tensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def is_counted(tensor: Any, mesh: Any) -> bool:
    """True if this rank's part enters the sums over the mesh: only the first of several replicas does."""
    return all(_is_sharded(p) or c == 0 for p, c in zip(_placements(tensor, mesh), mesh.get_coordinate(), strict=True))


def has_whole_rows(tensor: Any) -> bool:
    """True if every row of a tensor is on one rank: it is sharded along its first dimension only."""
    return not is_dtensor(tensor) or not _row_splitting_dimensions(tensor, tensor.device_mesh)


def reduced(table: Tensor, device_type: str, groups: Sequence[Any]) -> Tensor:
    """The moments of the whole, reduced from those of each rank's parts."""
    parts = table.to(device_type)
    sums = weighted(parts)
    for group in groups:
        dist.all_reduce(sums, group=group)
    common = averaged(sums)
    residual = residual_about(parts, common)
    for group in groups:
        dist.all_reduce(residual, group=group)
    return torch.stack([sums[:, 0], common, residual], dim=1).to(table.device)


def _row_splitting_dimensions(tensor: Any, mesh: Any) -> tuple[int, ...]:
    """The dimensions of the mesh along which rows are split."""
    return tuple(i for i, placement in enumerate(_placements(tensor, mesh)) if getattr(placement, "dim", 0) != 0)


def _placements(tensor: Any, mesh: Any) -> Sequence[Any]:
    """The placement of a tensor along each dimension of a mesh that contains its own; None where it is replicated."""
    if not is_dtensor(tensor):
        return [None] * mesh.ndim
    if tensor.device_mesh == mesh:
        return tensor.placements  # type: ignore[no-any-return]
    named = dict(zip(tensor.device_mesh.mesh_dim_names, tensor.placements, strict=True))
    return [named.get(name) for name in mesh.mesh_dim_names]


def _group(mesh: Any) -> Any:
    """One process group for the whole mesh, so that one all-reduce covers all dimensions."""
    if mesh.ndim == 1:
        return mesh.get_group()
    if mesh.size() == dist.get_world_size():
        return dist.group.WORLD
    return mesh._flatten().get_group()


def _is_sharded(placement: object) -> bool:
    # Not isinstance(…, Shard): FSDP over tensor parallel uses a strided shard, which is not always a subclass.
    return hasattr(placement, "dim")


def _emptied(pair: Pair) -> Pair:
    return Pair(*(tensor.new_empty(0) for tensor in pair))
