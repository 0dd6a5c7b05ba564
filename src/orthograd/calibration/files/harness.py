"""The samples that lm-evaluation-harness writes with ``--log_samples``: log-likelihoods of choices."""

from __future__ import annotations

import ast
import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .formats import Content, Row, offsets_of, shortened
from .keys import Keys, Normalization, UnusableError

RESPONSES = ("filtered_resps", "resps")
STATED: dict[Normalization, str] = {"none": "acc", "characters": "acc_norm", "bytes": "acc_bytes"}
"""The accuracy in the file that each normalization gives."""

REMEDY = "name the field of the label with --labels-key, such as doc.answer"


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
    readings = [_Reading(way, text, keys.normalize) for text in (_undelimited, str) for way in (_by_index, _by_text)]
    counts, filters, unclear = array("q"), set(), None
    for sample in samples:
        question = _question(sample, keys)
        readings = _agreeing(readings, question)
        counts.append(len(question.likelihoods))
        filters.add(sample.values.get("filter"))
        if len(filters) > 1:
            raise UnusableError(f"expected one filter, got {' and '.join(map(repr, filters))}", sample.place)
        if unclear is None and len({reading.labels[-1] for reading in readings}) > 1:
            unclear = question
    best = readings[0]
    if unclear is not None and any(reading.labels != best.labels for reading in readings):
        raise _ambiguous(unclear)
    source = f"lm-evaluation-harness, log-likelihoods of choices{_normalized(keys.normalize)}"
    values, truth = torch.frombuffer(best.scores, dtype=torch.float64), torch.frombuffer(best.labels, dtype=torch.int64)
    return Content(values, truth, source, offsets_of(counts), "multiple_choice", task_of(path))


def _refuse_options(keys: Keys) -> None:
    if keys.probabilities:
        raise UnusableError("expected no --probabilities, got samples of lm-evaluation-harness: log-likelihoods")
    if keys.task not in ("multiclass", "multiple_choice"):
        raise UnusableError(f"expected task 'multiple_choice', which the harness' samples are, got {keys.task!r}")


def _normalized(normalize: Normalization) -> str:
    return "" if normalize == "none" else f", divided by their number of {normalize}"


class _Question(NamedTuple):
    """A sample: the log-likelihood and the text of each choice, and what names the right one."""

    likelihoods: list[float]
    choices: list[str]
    target: Any
    sample: Row


def _question(sample: Row, keys: Keys) -> _Question:
    likelihoods = _likelihoods(sample)
    arguments = _arguments(sample)
    if _has_unconditional(arguments, len(likelihoods)):
        half = len(arguments) // 2
        likelihoods, arguments = likelihoods[:half], arguments[:half]
    if len(likelihoods) < 2:
        raise UnusableError(
            "expected log-likelihoods of at least two choices, got one: not multiple choice", sample.place
        )
    return _Question(likelihoods, [choice for _, choice in arguments], _target(sample, keys), sample)


@dataclass
class _Reading:
    """A way to read a file: how a target names the right choice, and which text of a choice has its length.

    No line says either. The accuracies that the lines state contradict all ways but the right one.
    """

    label_of: Callable[[_Question], int | None]
    text_of: Callable[[str], str]
    normalize: Normalization
    scores: array[float] = field(default_factory=lambda: array("d"))
    labels: array[int] = field(default_factory=lambda: array("q"))

    def add(self, question: _Question) -> None:
        """Add a question. Raises UnusableError if it cannot be read this way, or contradicts it."""
        label = self.label_of(question)
        if label is None or not 0 <= label < len(question.likelihoods):
            raise _unknown(question)
        lengths = {unit: _lengths(question, self.text_of, unit) for unit in STATED}
        if self.normalize != "none" and lengths[self.normalize] is None:
            raise UnusableError(
                f"expected the text of each choice in 'arguments' for --normalize {self.normalize}",
                question.sample.place,
            )
        for unit, name in STATED.items():
            _refuse_other_accuracy(question, label, lengths[unit], name, is_needed=unit == self.normalize)
        self.scores.extend(_per_length(question.likelihoods, lengths[self.normalize]))
        self.labels.append(label)


def _agreeing(readings: Sequence[_Reading], question: _Question) -> list[_Reading]:
    """The ways that a question can be read, of those that all before it can be. Raises if there are none."""
    agreeing, errors = [], []
    for reading in readings:
        try:
            reading.add(question)
            agreeing.append(reading)
        except UnusableError as error:
            errors.append(error)
    if not agreeing:
        raise next((error for error in errors if isinstance(error, _ContradictionError)), errors[0])
    return agreeing


class _ContradictionError(UnusableError):
    """The file states another accuracy."""


def _likelihoods(sample: Row) -> list[float]:
    """The log-likelihood of each choice: [[−3.2, false], …], with numbers as text in newer versions."""
    responses = next(sample.values[name] for name in RESPONSES if name in sample.values)
    try:
        likelihoods = [float(_first_number(response)) for response in responses]
    except (TypeError, ValueError, IndexError, KeyError):
        raise UnusableError(
            f"expected [log-likelihood, is greedy] of each choice, got {shortened(str(responses))}: generate_until and "
            "other tasks that are not multiple choice have no probabilities to evaluate",
            sample.place,
        ) from None
    broken = [likelihood for likelihood in likelihoods if not math.isfinite(likelihood)]
    if broken:
        raise UnusableError(f"expected finite log-likelihoods, got {broken[0]}", sample.place)
    return likelihoods


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


def _undelimited(continuation: str) -> str:
    """The choice in a continuation, which begins with a delimiter: a space or newlines, or nothing.

    >>> _undelimited(" yes"), _undelimited("  yes"), _undelimited("yes")
    ('yes', ' yes', 'yes')
    """
    return re.sub(r"^( |\n+)", "", continuation)


def _lengths(question: _Question, text_of: Callable[[str], str], unit: Normalization) -> list[int] | None:
    """The divisors of the log-likelihoods; None if the file lacks the texts of the choices."""
    if unit == "none":
        return [1] * len(question.likelihoods)
    texts = [text_of(choice) for choice in question.choices]
    if len(texts) != len(question.likelihoods) or not all(texts):
        return None
    return [len(text if unit == "characters" else text.encode()) for text in texts]


def _per_length(likelihoods: Sequence[float], lengths: Sequence[int] | None) -> list[float]:
    assert lengths is not None
    return [likelihood / length for likelihood, length in zip(likelihoods, lengths, strict=True)]


def _by_index(question: _Question) -> int | None:
    """The target as the index of the right choice."""
    is_index = _is_integer(question.target) or re.fullmatch(r"\s*[0-9]+\s*", str(question.target))
    return int(question.target) if is_index else None


def _by_text(question: _Question) -> int | None:
    """The choice whose text is the target.

    In tasks that put two choices into the context, both continuations are the target; the accuracy then says which one
    is right.
    """
    text, texts = str(question.target).strip(), [choice.strip() for choice in question.choices]
    if _is_integer(question.target) or text not in texts:
        return None
    if texts.count(text) == 1:
        return texts.index(text)
    accuracy, first = question.sample.values.get("acc"), _first_best(question.likelihoods)
    return (first if accuracy else 1 - first) if len(texts) == 2 and accuracy in (0, 1) else None


def _is_integer(target: Any) -> bool:
    return isinstance(target, int) and not isinstance(target, bool)


def _unknown(question: _Question) -> UnusableError:
    return UnusableError(
        f"expected a target from 0 to {len(question.likelihoods) - 1} or the text of a choice, got "
        f"{question.target!r}; {REMEDY}",
        question.sample.place,
    )


def _ambiguous(question: _Question) -> UnusableError:
    return UnusableError(
        f"expected a target that is either an index or the text of a choice, got {question.target!r}: choice "
        f"{_by_index(question)} by index, choice {_by_text(question)} by text, and no accuracy tells; {REMEDY}",
        question.sample.place,
    )


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


def _first_best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def _refuse_other_accuracy(
    question: _Question, label: int, lengths: Sequence[int] | None, name: str, *, is_needed: bool
) -> None:
    """Raise if the file states another accuracy: then the target or the lengths are not what they are read as."""
    stated = question.sample.values.get(name)
    if is_needed and stated not in (None, 0, 1):
        raise UnusableError(f"expected {name} 0 or 1 of one right choice, got {stated!r}", question.sample.place)
    # Choices in the context are what the harness measures there, and the file has only the continuation.
    if stated not in (0, 1) or lengths is None or (not is_needed and len(set(question.choices)) == 1):
        return
    if stated == int(_first_best(_per_length(question.likelihoods, lengths)) == label):
        return
    target = question.sample.values.get("target")
    by_label = f"target {target!r} as choice {label}; {REMEDY}"
    by_length = f"lengths {', '.join(map(str, lengths))} of the choices, and choice {label} as the right one"
    raise _ContradictionError(
        f"expected {name} {stated} as the file states, got {1 - stated:g} with "
        f"{by_label if name == 'acc' else by_length}",
        question.sample.place,
    )
