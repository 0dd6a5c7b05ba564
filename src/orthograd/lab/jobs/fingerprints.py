"""Whether runs share their data and network, by the fingerprints in their records; `orthograd.lab.runs` makes these.

A config names functions. What they give may change behind their names, or with every call; then runs of one config are
not alike, and what differs between them is not the method alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ROUNDING, ROUNDING_OF_LOGITS = 1e-4, 1e-2
"""Relative differences that other CPUs and versions of torch may make; logits have gone through many layers."""
SAME_EACH_TIME = "draw with a seed (torch.Generator().manual_seed(0)), or save what was drawn once and load it"
"""What to do with a data function that gives something else each time."""

Fingerprint = Mapping[str, Any]


def fingerprint_of(record: Mapping[str, Any]) -> Fingerprint:
    """That of a record; those of earlier versions have the number of parameters alone."""
    found: Fingerprint = record.get("fingerprint") or {name: record[name] for name in ("parameters",) if name in record}
    return found


def difference(one: Fingerprint, other: Fingerprint) -> str:
    """What sets two of them apart, as far as both tell; nothing where that is no more than rounding.

    >>> difference({"parameters": 275}, {"parameters": 17411})
    'another network: 275 parameters, and 17,411'
    >>> difference({"parameters": 275}, {})
    ''
    """
    shared = one.keys() & other.keys()
    if "data" in shared and one["data"] != other["data"]:
        return f"other data: {_words(one)}, and {_words(other)}"
    if "parameters" in shared and one["parameters"] != other["parameters"]:
        return f"another network: {one['parameters']:,} parameters, and {other['parameters']:,}"
    if "structure" not in shared:
        return ""
    if one["structure"] != other["structure"]:
        return "another network: other names, shapes or kinds of its parameters"
    for name, sketch in one["values"].items():
        if not _agree(sketch, other["values"][name], ROUNDING):
            return f"another network: other initial values of {name}"
    if not all(_agree(*pair, ROUNDING_OF_LOGITS) for pair in zip(one["logits"], other["logits"], strict=True)):
        return "another network: with the same initial values other logits"
    return ""


def _agree(one: Iterable[float], other: Iterable[float], tolerance: float) -> bool:
    pairs = list(zip(one, other, strict=True))
    scale = max(abs(number) for pair in pairs for number in pair)
    return all(abs(left - right) <= tolerance * scale for left, right in pairs)


def _words(found: Fingerprint) -> str:
    train, test = found["images"]
    return f"{train[0]} + {test[0]} images of {' × '.join(map(str, train[1:]))} with SHA-256 {found['data'][:8]}…"
