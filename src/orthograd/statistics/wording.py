"""Numbers and findings in words, and in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .interval import Interval


def number(value: float) -> str:
    """Four digits, enough for a mean.

    >>> number(0.16849), number(float("-inf"))
    ('0.1685', '-inf')
    """
    return f"{value:.4g}"


def probability(p: float) -> str:
    """Two digits of a p-value.

    >>> probability(0.0312), probability(0.0)
    ('0.031', '0')
    """
    return f"{p:.2g}"


def ends(interval: Interval) -> str:
    """Both ends.

    >>> ends(Interval(-0.5, 1.25))
    '-0.5 to 1.25'
    """
    return f"{number(interval.low)} to {number(interval.high)}"


def percent(fraction: float) -> str:
    """A level of confidence.

    >>> percent(1 - 0.05)
    '95 %'
    """
    return f"{100 * fraction:.4g} %"


def json_safe(value: Any) -> Any:
    """Dataclasses as dicts, intervals as lists, and infinity, which JSON has no number for, as "inf" or "-inf".

    >>> json_safe({"ends": Interval(1.0, float("inf"))})
    {'ends': [1.0, 'inf']}
    """
    if is_dataclass(value):
        return {field.name: json_safe(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_safe(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [json_safe(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
