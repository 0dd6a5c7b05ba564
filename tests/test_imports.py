"""Who may import whom: the library below, the laboratory on it, the paper and the command line on top."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# From the ground up. A part imports parts of lower layers, none of its own layer.
LAYERS = [
    ["imports"],
    ["projection", "options", "calibration", "statistics", "losses", "jax"],
    ["partition", "engine"],
    ["update", "verification"],
    ["attachment"],
    ["optimizer"],
    ["optim"],
    ["figures"],
    ["calibration.sklearn", "calibration.torchmetrics", "calibration.huggingface"],
    ["diagnosis"],
    ["lab.files", "lab.versions", "lab.page"],
    ["lab.jobs", "lab.data", "lab.kernels"],
    ["lab.networks"],
    ["lab.training"],
    ["lab.gpu"],
    ["lab.runs"],
    ["lab.comparison"],
    ["lab.evaluation"],
    ["lab.bench"],
    ["paper"],
    ["cli"],
    ["__main__"],
]
HEIGHTS = {part: height for height, parts in enumerate(LAYERS) for part in parts}
OPTIONAL = {"triton", "matplotlib", "ray", "jax", "optax", "skimage", "sklearn", "scipy", "typer", "rich"}
"""What not everybody has, or what takes long to import: modules that need it may be imported in a function."""


class Import(NamedTuple):
    """One import of a module of ours by another."""

    importer: str
    imported: str
    is_in_function: bool
    is_for_types: bool


@cache
def modules() -> dict[str, Path]:
    paths = {path.relative_to(SOURCE).with_suffix(""): path for path in (SOURCE / "orthograd").rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


@cache
def imports() -> list[Import]:
    return [found for name, path in modules().items() for found in imports_of(name, path)]


def imports_of(name: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    in_functions = {id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)}
    conditions = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    for_types = {id(node) for c in conditions if ast.unparse(c.test) == "TYPE_CHECKING" for node in ast.walk(c)}
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            for alias in node.names:
                imported = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base
                yield Import(name, imported, id(node) in in_functions, id(node) in for_types)


def part_of(module: str) -> str | None:
    """The part in the layers that a module belongs to; None for the package itself."""
    inside = module.removeprefix("orthograd").removeprefix(".")
    return max((part for part in HEIGHTS if inside == part or inside.startswith(f"{part}.")), key=len, default=None)


def test_every_module_has_its_place_in_the_layers():
    homeless = [name for name in modules() if part_of(name) is None]
    assert sorted(homeless) == ["orthograd", "orthograd.lab"]


def test_no_import_runs_up_or_across():
    pairs = {(each.importer, each.imported) for each in imports()}
    parts = {(part_of(importer), part_of(imported)): (importer, imported) for importer, imported in pairs}
    others = {both: pair for both, pair in parts.items() if None not in both and both[0] != both[1]}
    assert not [pair for (low, high), pair in others.items() if HEIGHTS[high] >= HEIGHTS[low]]


def test_there_are_no_circles():
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for each in imports():
        if each.imported != each.importer:
            graph[each.importer].add(each.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' → '.join(error.args[1])}")


@cache
def needs_optional(module: str) -> bool:
    """True if importing a module imports an optional package."""
    tree = ast.parse(modules()[module].read_text())
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level}
    inner = [each for each in imports() if each.importer == module and not (each.is_in_function or each.is_for_types)]
    is_direct = bool({name.split(".")[0] for name in names} & OPTIONAL)
    return is_direct or any(needs_optional(each.imported) for each in inner)


def test_functions_import_only_what_is_optional():
    """Or what keeps help free of torch, in the command line."""
    inner = [each for each in imports() if each.is_in_function and part_of(each.importer) != "cli"]
    assert not [each for each in inner if not needs_optional(each.imported)]


def test_the_top_of_the_package_is_small():
    names = {path.relative_to(SOURCE / "orthograd").parts[0] for path in modules().values()}
    assert len(names) <= 22
