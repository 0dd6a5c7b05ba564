"""Which runs an experiment consists of, and which of them are still to be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .files import JsonObject, config_hash, plain_copy
from .store import Store


@dataclass(frozen=True)
class Plan:
    """The configs of a grid by what a store has of them, each in the order of the grid."""

    finished: list[JsonObject]
    resumable: list[JsonObject]
    missing: list[JsonObject]


class Grid(Sequence[JsonObject]):
    """An ordered list of configs, no two of them equal.

    >>> grid = Grid.product({"epochs": 3}, arm=["sgd", "orthograd"], seed=[0, 1])
    >>> len(grid), grid[1]
    (4, {'epochs': 3, 'arm': 'sgd', 'seed': 1})
    """

    def __init__(self, configs: Iterable[JsonObject]) -> None:
        self._configs = [plain_copy(config) for config in configs]
        places: dict[str, int] = {}
        for i, config in enumerate(self._configs):
            first = places.setdefault(config_hash(config), i)
            if first != i:
                raise ValueError(f"expected different configs, got the same at {first} and {i}: {config}")

    @classmethod
    def product(cls, base: JsonObject, **axes: Iterable[Any]) -> Grid:
        """Every combination of the axes' values on top of base; the last axis changes fastest."""
        if taken := sorted(set(base) & set(axes)):
            raise ValueError(f"expected axes that are not in base, got {', '.join(taken)} in both")
        return cls(base | dict(zip(axes, values, strict=True)) for values in product(*axes.values()))

    def plan(self, store: Store) -> Plan:
        """What is finished, has a checkpoint, or is missing; StoreError if a record is not sound."""
        plan = Plan([], [], [])
        for config in self._configs:
            run = store.get(config)
            if run.is_finished:
                run.record()
                plan.finished.append(config)
            else:
                (plan.resumable if run.is_resumable else plan.missing).append(config)
        return plan

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __getitem__(self, index: Any) -> Any:
        return self._configs[index]
