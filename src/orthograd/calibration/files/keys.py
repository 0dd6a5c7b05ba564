"""Selects the arrays or columns of a file, by name and never by their values."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..inputs import Task

LOGITS = ("logits",)
PROBABILITIES = ("probabilities", "probs")
LABELS = ("labels", "label", "y", "targets", "target")

OTHERS = {LOGITS: ("predictions",), PROBABILITIES: ("scores",), LABELS: ("label_ids", "y_true")}
"""Names of Hugging Face's Trainer and pipelines and of scikit-learn, used if a file has none of the usual ones."""

Normalization = Literal["none", "characters", "bytes"]

FIRST = 3
"""Rows that are enough to tell a column that counts 0, 1, 2."""

_NUMBERED = re.compile("(.*?)([0-9]+)", re.DOTALL)
_UNNAMED = re.compile("(Unnamed: [0-9]+)?")  # pandas writes its index as '', and reads it as 'Unnamed: 0'
_NO_CLASSES = {"prediction", "predicted", "pred", "confidence", "score", "probability", "prob", "id", "index"}


class UnusableError(ValueError):
    """The content of a file cannot be used. The message lacks only the name of the file.

    ``place`` is added to that name, such as ":17" for a line.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True)
class Columns:
    """The used columns of a table: one for each class, in the order of the labels, and the label."""

    classes: list[str]
    label: str
    is_sorted: bool  # True if the file has them in another order

    def __str__(self) -> str:
        order = ", sorted by their numbers" if self.is_sorted else ""
        return f"classes {listed(self.classes)} ({len(self.classes)} columns{order}), label {self.label!r}"

    def numbers_of(self, first: Any) -> dict[str, int]:
        """The number of each class by its name if the first label is such a name; empty if labels are numbers.

        >>> Columns(["cat", "dog"], "label", False).numbers_of("dog")
        {'cat': 0, 'dog': 1}
        """
        if is_number(first) or first not in self.classes:
            return {}
        return {name: number for number, name in enumerate(self.classes)}


@dataclass(frozen=True)
class Keys:
    """Names to look for in a file: the requested ones, or the usual ones."""

    scores: str | None
    labels: str | None
    probabilities: bool
    classes: Sequence[str] | None = None
    task: Task = "multiclass"
    normalize: Normalization = "none"

    def scores_among(self, names: Iterable[str]) -> str:
        """The name of the scores.

        >>> Keys(scores=None, labels=None, probabilities=False).scores_among(["logits", "y"])
        'logits'
        """
        there = list(names)
        usual, others = (PROBABILITIES, LOGITS) if self.probabilities else (LOGITS, PROBABILITIES)
        if self.scores is None and not _present(usual, there) and _present(others, there):
            raise UnusableError(_wrong_scores(self.probabilities, there))
        return _one_of(there, "scores", self.scores, usual)

    def labels_among(self, names: Iterable[str]) -> str:
        """The name of the labels."""
        return _one_of(list(names), "labels", self.labels, LABELS)

    def arrays_among(self, names: Iterable[str]) -> tuple[str, str]:
        """The names of the scores and the labels of a file of arrays."""
        if self.classes is not None:
            raise UnusableError(
                f"expected a table for {_option(self.classes)}, got arrays, which have no columns: remove the option"
            )
        there = list(names)
        return self.scores_among(there), self.labels_among(there)

    def source(self, scores: str, labels: str) -> str:
        """A description of the used arrays."""
        return f"{'probabilities' if self.probabilities else 'logits'} {scores!r}, labels {labels!r}"

    def columns_among(self, names: Sequence[str], first: Callable[[], Mapping[str, Sequence[Any]]] = dict) -> Columns:
        """The columns of the classes and of the labels.

        Columns of classes are numbered from 0 like labels, with any prefix, or given by name. A column without a name
        is an index. ``first`` returns the first cells of each column, from which an error says what may be a class.

        >>> print(Keys(None, None, False).columns_among(["p_0", "p_2", "p_1", "y"]))
        classes 'p_0', 'p_1', 'p_2' (3 columns, sorted by their numbers), label 'y'
        """
        _refuse_twice(names)
        label = self.labels_among(names)
        others = [name for name in names if name != label and not _UNNAMED.fullmatch(name)]
        if self.classes is not None and not _is_pattern(self.classes, names):
            return Columns(_chosen(self.classes, names, label), label, is_sorted=False)
        classes = _numbered(others, first) if self.classes is None else _matching(self.classes[0], others)
        # As text, 10 sorts before 2, and labels would refer to other classes.
        are_used = set(classes).__contains__
        return Columns(classes, label, is_sorted=classes != list(filter(are_used, names)))

    def has_scores_among(self, names: Iterable[str]) -> bool:
        """True if a table has all scores in one column, rather than a column for each class."""
        if self.scores is not None and self.classes is not None:
            raise UnusableError("expected either --scores-key or --classes, got both")
        if self.scores is not None or self.classes is not None:
            return self.classes is None
        there = list(names)
        return any(_present(usual, there) for usual in (LOGITS, PROBABILITIES))


def _present(usual: tuple[str, ...], there: Sequence[str]) -> list[str]:
    """The usual names that are there, otherwise those of other libraries."""
    return [name for name in usual if name in there] or [name for name in OTHERS[usual] if name in there]


def _one_of(there: Sequence[str], what: str, asked: str | None, usual: tuple[str, ...]) -> str:
    wanted = usual if asked is None else (asked,)
    matching = _present(usual, there) if asked is None else [name for name in wanted if name in there]
    if len(matching) == 1:
        return matching[0]
    option = f"--{what}-key"
    if matching:
        raise UnusableError(f"expected one array of {what}, got {', '.join(map(repr, matching))}; choose with {option}")
    hint = f"; choose with {option}" if asked is None else ""
    raise UnusableError(f"expected {what} named {' or '.join(map(repr, wanted))}, got {listed(there)}{hint}")


def _wrong_scores(probabilities: bool, there: Sequence[str]) -> str:
    if probabilities:
        return f"expected probabilities, got {listed(there)}; leave out --probabilities to evaluate the logits"
    return f"expected logits, got {listed(there)}; pass --probabilities to evaluate the probabilities"


def _refuse_twice(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UnusableError(f"expected column names that differ, got {twice[0]!r} twice")


def _is_pattern(asked: Sequence[str], names: Sequence[str]) -> bool:
    return len(asked) == 1 and asked[0].endswith("*") and asked[0] not in names


def _chosen(asked: Sequence[str], names: Sequence[str], label: str) -> list[str]:
    """The requested columns, in that order."""
    _refuse_twice(asked)
    for name in asked:
        if _UNNAMED.fullmatch(name):
            raise UnusableError(f"expected names in --classes, got {name!r}, the index of a table: remove it")
        if name not in names:
            raise UnusableError(f"expected the column {name!r}, got {listed(names)}")
        if name == label:
            raise UnusableError(f"expected classes in --classes, got the label {name!r}: remove it")
    if len(asked) < 2:
        raise UnusableError(f"expected at least two classes, got {_option(asked)}")
    return list(asked)


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Columns numbered from 0 with the prefix before the asterisk."""
    prefix = pattern[:-1]
    family = _families(names).get(prefix)
    if family is None:
        wanted = f"{prefix + '0'!r}, {prefix + '1'!r} …"
        raise UnusableError(f"expected the columns {wanted} of {_option([pattern])}, got {listed(names)}")
    return family


def _numbered(names: Sequence[str], first: Callable[[], Mapping[str, Sequence[Any]]]) -> list[str]:
    """All columns in the order of their numbers. Raises if one of them is not clearly a class."""
    families = _families(names)
    for family in families.values():
        if len(family) == len(names):
            return family
    if not families:
        cells = first()
        possible = [name for name in names if _may_be_class(name, cells.get(name, ()))]
        raise UnusableError(
            f"expected classes numbered from 0, such as 'class_0', 'class_1', got {listed(names)}; "
            + (
                f"name the classes in the order of the labels: {_option(possible)}"
                if len(possible) > 1
                else "store one column per class, with the logits or probabilities of every class"
            )
        )
    others = [name for name in names if len(families) > 1 or name not in next(iter(families.values()))]
    unclear = "is not clearly a class" if len(others) == 1 else "are not clearly classes"
    choices = " or ".join(_option([prefix + "*"]) for prefix in families)
    raise UnusableError(f"{listed(others)} {unclear}; choose the columns of the classes: {choices}")


def _may_be_class(name: str, cells: Sequence[Any]) -> bool:
    """False for the name of something else, and for cells that are text or count 0, 1, 2."""
    known = [cell for cell in cells if cell not in ("", None)]
    if name.lower() in _NO_CLASSES or not all(map(is_number, known)):
        return False
    return len(known) < FIRST or [float(cell) for cell in known] != [*range(FIRST)]


def is_number(cell: Any) -> bool:
    """True for a number, or text that is one."""
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _families(names: Iterable[str]) -> dict[str, list[str]]:
    """Columns numbered 0, 1, 2 … in this order, by prefix."""
    members: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        members[match[1]].append((int(match[2]), match[0]))
    return {
        prefix: [name for _, name in sorted(family)]
        for prefix, family in members.items()
        if len(family) > 1 and sorted(number for number, _ in family) == [*range(len(family))]
    }


def _option(names: Sequence[str]) -> str:
    return "--classes " + shlex.quote(",".join(names) if len(names) < 5 else f"{names[0]},{names[1]},…")


def listed(names: Sequence[str]) -> str:
    """Names as text: all, or the first two and the last if there are many."""
    if len(names) > 10:
        return f"{names[0]!r}, {names[1]!r} … {names[-1]!r}"
    return ", ".join(map(repr, names)) or "nothing"
