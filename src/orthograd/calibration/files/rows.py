"""Readers of rows in JSON: scores with a label, or the samples of lm-evaluation-harness."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ..inputs import Task
from . import harness
from .formats import Content, Report, Row, offsets_of, reported, shortened
from .keys import Keys, UnusableError


def jsonl(path: Path, keys: Keys, report: Report) -> Content:
    """Scores and labels of a file with a JSON object in each line. Lines are read one at a time, and not kept."""
    with path.open(encoding="utf-8-sig") as file:
        return _content(_parsed(reported(file, report)), path, keys)


def json_file(path: Path, keys: Keys, _: Report) -> Content:
    """Scores and labels of a JSON array of rows, or of a JSON object of columns."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UnusableError(f"expected JSON, got {error.msg}", f":{error.lineno}") from None
    return _content(_rows_of(data), path, keys)


def _parsed(lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _object(line, number)


def _object(line: str, number: int) -> Row:
    place = f":{number}"
    try:
        values = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        raise UnusableError(f"expected a JSON object, got {shortened(line.strip())}", place) from None
    if not isinstance(values, dict):
        raise UnusableError(f"expected a JSON object, got {shortened(line.strip())}", place)
    return Row(values, place, number)


def _rows_of(data: Any) -> Iterator[Row]:
    if isinstance(data, dict) and data:
        lengths = {name: len(column) for name, column in data.items() if isinstance(column, list)}
        if len(lengths) < len(data) or len(set(lengths.values())) > 1:
            raise UnusableError(f"expected rows, or columns that are lists of one length, got {shortened(str(data))}")
        data = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    for number, values in enumerate(data if isinstance(data, list) else ()):
        place = f", row {number}"
        if not isinstance(values, dict):
            raise UnusableError(f"expected a JSON object, got {shortened(json.dumps(values))}", place)
        yield Row(values, place)


def _content(rows: Iterator[Row], path: Path, keys: Keys) -> Content:
    """The content of rows; the names in the first one say which format they have."""
    first = next(rows, None)
    if first is None:
        raise UnusableError("expected at least one row, got none")
    rows = chain([first], rows)
    if harness.is_sample(first.values):
        return harness.content(rows, path, keys)
    if keys.normalize != "none":
        raise UnusableError(
            f"expected samples of lm-evaluation-harness for --normalize {keys.normalize}, got other rows"
        )
    return _scored(rows, first, keys)


def _scored(rows: Iterator[Row], first: Row, keys: Keys) -> Content:
    scores, label = keys.arrays_among(first.values)
    source = keys.source(scores, label)
    read: Callable[[Row], tuple[list[float], Any]]
    if _are_named(first.values[scores]):
        classes = _class_names(first.values[scores], keys)
        source += f", classes {', '.join(map(repr, classes))}"
        read = _NamedScores(scores, label, classes)
    else:
        read = _PlainScores(scores, label, keys.task)
    values, labels, counts, lines = array("d"), array("q"), array("q"), array("q")
    for row in rows:
        numbers, truth = read(row)
        if counts and keys.task != "multiple_choice" and len(numbers) != counts[0]:
            raise UnusableError(f"expected {counts[0]} scores as in the first row, got {len(numbers)}", row.place)
        values.extend(numbers)
        labels.extend(truth)
        counts.append(len(numbers))
        if row.line is not None:
            lines.append(row.line)
    return _shaped(values, labels, counts, source, keys.task)._replace(lines=lines)


def _shaped(values: array[float], labels: array[int], counts: array[int], source: str, task: Task) -> Content:
    scores, truth = torch.frombuffer(values, dtype=torch.float64), torch.frombuffer(labels, dtype=torch.int64)
    if task == "multiple_choice":
        return Content(scores, truth, source, offsets_of(counts))
    if task == "binary":
        return Content(scores, truth, source)
    columns = counts[0]
    return Content(scores.view(-1, columns), truth.view(-1, columns) if task == "multilabel" else truth, source)


class _PlainScores:
    """Reads a row of numbers: a list, or a single one for a binary problem."""

    def __init__(self, scores: str, label: str, task: Task) -> None:
        self.scores, self.label, self.task = scores, label, task

    def __call__(self, row: Row) -> tuple[list[float], list[int]]:
        values, truth = (_entry(row, name) for name in (self.scores, self.label))
        values = [values] if self.task == "binary" and not isinstance(values, list) else values
        _refuse_other_numbers(values, self.scores, row.place)
        if self.task == "binary" and len(values) != 1:
            raise UnusableError(
                f"expected one score in {self.scores!r} for task 'binary', got {len(values)}", row.place
            )
        labels = truth if self.task == "multilabel" else [truth]
        if self.task == "multilabel" and (not isinstance(truth, list) or len(truth) != len(values)):
            raise UnusableError(f"expected {len(values)} labels in {self.label!r}, got {truth!r}", row.place)
        return values, [_integer(each, self.label, row.place) for each in labels]


class _NamedScores:
    """Reads a row of ``{"label": …, "score": …}``, the output of a pipeline of Transformers with ``top_k=None``."""

    def __init__(self, scores: str, label: str, classes: Sequence[str]) -> None:
        self.scores, self.label = scores, label
        self.numbers = {name: number for number, name in enumerate(classes)}

    def __call__(self, row: Row) -> tuple[list[float], list[int]]:
        named, truth = (_entry(row, name) for name in (self.scores, self.label))
        by_name = {each["label"]: each["score"] for each in named} if _are_named(named) else {}
        if by_name.keys() != self.numbers.keys():
            listed = ", ".join(map(repr, self.numbers))
            raise UnusableError(f"expected a score of each of {listed}, got {shortened(json.dumps(named))}", row.place)
        values = [by_name[name] for name in self.numbers]
        _refuse_other_numbers(values, self.scores, row.place)
        return values, [self._label(truth, row.place)]

    def _label(self, truth: Any, place: str) -> int:
        if isinstance(truth, str) and truth in self.numbers:
            return self.numbers[truth]
        are_numbered = all(name == f"LABEL_{number}" for name, number in self.numbers.items())
        if are_numbered and not isinstance(truth, str):
            return _integer(truth, self.label, place)
        raise UnusableError(f"expected a label among {', '.join(map(repr, self.numbers))}, got {truth!r}", place)


def _are_named(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(each, dict) and {"label", "score"} <= each.keys() for each in value)


def _class_names(named: list[dict[str, Any]], keys: Keys) -> list[str]:
    """Names of the classes: LABEL_0, LABEL_1 … by number, others by the alphabet. Labels refer to them by name."""
    if keys.task != "multiclass":
        raise UnusableError(f"expected task 'multiclass' for scores with labels, got {keys.task!r}")
    if len(named) < 2:
        raise UnusableError("expected a score of every class, got one: run the pipeline with top_k=None")
    return sorted((each["label"] for each in named), key=lambda name: (re.sub(r"\d+$", "", name), len(name), name))


def _entry(row: Row, name: str) -> Any:
    if name not in row.values:
        raise UnusableError(f"expected {name!r}, got {', '.join(map(repr, row.values)) or 'nothing'}", row.place)
    return row.values[name]


def _refuse_other_numbers(values: Any, name: str, place: str) -> None:
    if not isinstance(values, list) or not values:
        raise UnusableError(f"expected a list of scores in {name!r}, got {shortened(json.dumps(values))}", place)
    other = next((each for each in values if type(each) not in (float, int)), None)
    if other is not None or None in values:
        raise UnusableError(f"expected numbers in {name!r}, got {shortened(json.dumps(other))}", place)


def _integer(value: Any, name: str, place: str) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and abs(value) <= 2**53 and float(value).is_integer()):
        raise UnusableError(f"expected an integer in {name!r}, got {shortened(json.dumps(value))}", place)
    return int(value)
