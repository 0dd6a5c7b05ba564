"""The verdict of a comparison in one word, and numbers as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from .difference import Interval

Direction = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "lower", "higher", "equivalent", "inconclusive"]


def verdict_of(*, difference: float, is_significant: bool, is_equivalent: bool, better: Direction | None) -> Verdict:
    """The verdict on the candidate; the difference is candidate − baseline.

    Equivalence comes first: a difference within the margin does not matter, even if it is significant. Neither
    equivalent nor significant is inconclusive.

    >>> verdict_of(difference=-0.2, is_significant=True, is_equivalent=False, better="lower")
    'better'
    >>> verdict_of(difference=-0.2, is_significant=False, is_equivalent=False, better="lower")
    'inconclusive'
    """
    if is_equivalent:
        return "equivalent"
    if not is_significant:
        return "inconclusive"
    candidate_is: Direction = "lower" if difference < 0 else "higher"
    if better is None:
        return candidate_is
    return "better" if candidate_is == better else "worse"


def number(value: float) -> str:
    """A number with four significant digits.

    >>> number(0.16849), number(float("-inf"))
    ('0.1685', '-inf')
    """
    return f"{value:.4g}"


def probability(p: float, *, level: float = 0.05) -> str:
    """A p-value with two significant digits, or more where these hide on which side of the level it lies.

    >>> probability(0.0312), probability(0.0), probability(0.0497), probability(0.05003)
    ('0.031', '0', '0.0497', '0.05003')
    """
    texts = (f"{p:.{digits}g}" for digits in range(2, 18))
    return next(
        (text for text in texts if (float(text) < level, float(text) > level) == (p < level, p > level)), str(p)
    )


def ends(interval: Interval) -> str:
    """Both ends of an interval.

    >>> ends(Interval(-0.5, 1.25))
    '-0.5 to 1.25'
    """
    return f"{number(interval.low)} to {number(interval.high)}"


def percent(fraction: float) -> str:
    """A confidence level in percent.

    >>> percent(1 - 0.05)
    '95%'
    """
    return f"{100 * fraction:.4g}%"


def json_safe(value: Any) -> Any:
    """A value for JSON: dataclasses as dicts, intervals as lists, infinity as "inf" or "-inf".

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
