"""The samples that lm-evaluation-harness writes with ``--log_samples``: log-likelihoods of choices."""

from __future__ import annotations

import ast
import re
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from .formats import Content, Row, offsets_of, shortened
from .keys import Keys, Normalization, UnusableError

RESPONSES = ("filtered_resps", "resps")
STATED = {"none": "acc", "characters": "acc_norm", "bytes": "acc_bytes"}
"""The accuracy in the file that each normalization gives."""


def is_sample(values: dict[str, Any]) -> bool:
    """True if a row has the names of a sample of the harness."""
    return any(name in values for name in RESPONSES)


def task_of(path: Path) -> str:
    """The task in the name of a file.

    >>> task_of(Path("samples_arc_easy_2026-04-17T20-18-28.440238.jsonl"))
    'arc_easy'
    """
    return re.sub(r"_\d{4}-\d\d-\d\dT.*$", "", path.stem).removeprefix("samples_")


def content(samples: Iterable[Row], path: Path, keys: Keys) -> Content:
    """The log-likelihoods of all choices as ragged logits, and the index of each right choice.

    Their softmax is the probability of a choice among the choices. With a normalization, they are divided by the number
    of characters or bytes of the choice first. Where the file states an accuracy of the sample, ours has to agree.
    """
    _refuse_options(keys)
    scores, labels, counts = array("d"), array("q"), array("q")
    filters = set()
    for sample in samples:
        likelihoods, label = _question(sample, keys)
        scores.extend(likelihoods)
        labels.append(label)
        counts.append(len(likelihoods))
        filters.add(sample.values.get("filter"))
        if len(filters) > 1:
            raise UnusableError(f"expected one filter, got {' and '.join(map(repr, filters))}", sample.place)
    source = f"lm-evaluation-harness, log-likelihoods of choices{_normalized(keys.normalize)}"
    values, truth = torch.frombuffer(scores, dtype=torch.float64), torch.frombuffer(labels, dtype=torch.int64)
    return Content(values, truth, source, offsets_of(counts), "multiple_choice", task_of(path))


def _refuse_options(keys: Keys) -> None:
    if keys.probabilities:
        raise UnusableError("expected no --probabilities, got samples of lm-evaluation-harness: log-likelihoods")
    if keys.task not in ("multiclass", "multiple_choice"):
        raise UnusableError(f"expected task 'multiple_choice', which the harness' samples are, got {keys.task!r}")


def _normalized(normalize: Normalization) -> str:
    return "" if normalize == "none" else f", divided by their number of {normalize}"


def _question(sample: Row, keys: Keys) -> tuple[list[float], int]:
    """Scores of the choices, and the index of the right one."""
    likelihoods = _likelihoods(sample)
    arguments = _arguments(sample)
    if _has_unconditional(arguments, len(likelihoods)):
        half = len(arguments) // 2
        likelihoods, arguments = likelihoods[:half], arguments[:half]
    if len(likelihoods) < 2:
        raise UnusableError(
            "expected log-likelihoods of at least two choices, got one: not multiple choice", sample.place
        )
    choices = [continuation.lstrip() for _, continuation in arguments]
    scores = _per_length(likelihoods, choices, keys.normalize, sample)
    label = _label(sample, keys, likelihoods, choices)
    _refuse_other_accuracy(sample, scores, label, STATED[keys.normalize])
    return scores, label


def _likelihoods(sample: Row) -> list[float]:
    """The log-likelihood of each choice: [[−3.2, false], …], with numbers as text in newer versions."""
    responses = next(sample.values[name] for name in RESPONSES if name in sample.values)
    try:
        return [float(_first_number(response)) for response in responses]
    except (TypeError, ValueError, IndexError, KeyError):
        raise UnusableError(
            f"expected [log-likelihood, is greedy] of each choice, got {shortened(str(responses))}: generate_until and "
            "other tasks that are not multiple choice have no probabilities to evaluate",
            sample.place,
        ) from None


def _first_number(response: Any) -> Any:
    while isinstance(response, list):
        response = response[0]
    return response


def _arguments(sample: Row) -> list[tuple[str, str]]:
    """Context and continuation of each request; empty if the file has none."""
    given = sample.values.get("arguments") or []
    requests = [[*each.values()] if isinstance(each, dict) else each for each in _listed(given)]
    if all(isinstance(each, list) and len(each) >= 2 for each in requests):
        return [(str(each[0]), str(each[1])) for each in requests]
    return []


def _listed(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, dict) else list(given)


def _has_unconditional(arguments: Sequence[tuple[str, str]], responses: int) -> bool:
    """True if the second half are the same choices without a context, which acc_mutual_info needs."""
    half, rest = divmod(len(arguments), 2)
    if rest or not half or len(arguments) != responses:
        return False
    first, second = arguments[:half], arguments[half:]
    is_same = [choice for _, choice in first] == [choice for _, choice in second]
    return is_same and all(not context for context, _ in second) and any(context for context, _ in first)


def _per_length(likelihoods: list[float], choices: Sequence[str], normalize: Normalization, sample: Row) -> list[float]:
    if normalize == "none":
        return likelihoods
    if len(choices) != len(likelihoods) or not all(choices):
        raise UnusableError(
            f"expected the text of each choice in 'arguments' for --normalize {normalize}", sample.place
        )
    lengths = [len(choice if normalize == "characters" else choice.encode()) for choice in choices]
    return [likelihood / length for likelihood, length in zip(likelihoods, lengths, strict=True)]


def _label(sample: Row, keys: Keys, likelihoods: Sequence[float], choices: Sequence[str]) -> int:
    """The index of the right choice.

    The target is an index or the text of a choice. In tasks that put the choices into the context it is neither; with
    two choices, the accuracy then says which one is right.
    """
    target = _target(sample, keys)
    index = _index(target, choices)
    if index is None and len(likelihoods) == 2 and sample.values.get("acc") in (0, 1) and keys.labels is None:
        index = _first_best(likelihoods) if sample.values["acc"] else 1 - _first_best(likelihoods)
    if index is None or not 0 <= index < len(likelihoods):
        raise UnusableError(
            f"expected a target from 0 to {len(likelihoods) - 1} or the text of a choice, got {target!r}; name the "
            "field of the label with --labels-key, such as doc.answer",
            sample.place,
        )
    return index


def _target(sample: Row, keys: Keys) -> Any:
    target: Any = sample.values
    for name in (keys.labels or "target").split("."):
        if not isinstance(target, dict) or name not in target:
            raise UnusableError(f"expected {keys.labels or 'target'!r}, got {', '.join(sample.values)}", sample.place)
        target = target[name]
    if isinstance(target, str) and target.startswith("["):
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError):
            return target
    if isinstance(target, list) and len(target) != 1:
        raise UnusableError(f"expected one right choice, got {target!r}", sample.place)
    return target[0] if isinstance(target, list) else target


def _index(target: Any, choices: Sequence[str]) -> int | None:
    if isinstance(target, int) and not isinstance(target, bool):
        return target
    text = str(target).strip()
    if re.fullmatch(r"\d+", text):
        return int(text)
    matching = [number for number, choice in enumerate(choices) if choice.strip() == text]
    return matching[0] if len(matching) == 1 else None


def _first_best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def _refuse_other_accuracy(sample: Row, scores: Sequence[float], label: int, name: str) -> None:
    """Raise if the file states another accuracy: then the target does not mean what it is read as."""
    stated = sample.values.get(name)
    if stated is None or stated == int(_first_best(scores) == label):
        return
    if stated not in (0, 1):
        raise UnusableError(f"expected {name} 0 or 1 of one right choice, got {stated!r}", sample.place)
    target = sample.values.get("target")
    raise UnusableError(
        f"expected {name} {stated} as the file states, got {1 - stated:g} with target {target!r} as choice {label}; "
        "name the field of the label with --labels-key, such as doc.answer",
        sample.place,
    )
