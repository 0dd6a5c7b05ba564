"""Which of the arrays or columns of a file are meant; what a file holds is never guessed from its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LOGITS = ("logits",)
PROBABILITIES = ("probabilities", "probs")
LABELS = ("labels", "label", "y", "targets", "target")


class UnusableError(ValueError):
    """What a file holds cannot be used; the message is complete but for the name of the file."""


@dataclass(frozen=True)
class Keys:
    """What to look for in a file: the usual names, or those that were asked for."""

    scores: str | None
    labels: str | None
    probabilities: bool

    def scores_among(self, names: Iterable[str]) -> str:
        """The name of the scores.

        >>> Keys(scores=None, labels=None, probabilities=False).scores_among(["logits", "y"])
        'logits'
        """
        there = list(names)
        usual, others = (PROBABILITIES, LOGITS) if self.probabilities else (LOGITS, PROBABILITIES)
        if self.scores is None and not set(usual).intersection(there) and set(others).intersection(there):
            raise UnusableError(_wrong_kind(self.probabilities, there))
        return _one_of(there, "scores", self.scores, usual)

    def labels_among(self, names: Iterable[str]) -> str:
        """The name of the labels."""
        return _one_of(list(names), "labels", self.labels, LABELS)

    def has_scores_among(self, names: Iterable[str]) -> bool:
        """Whether a table has all scores in one column, rather than a column for each class."""
        known = {self.scores} if self.scores is not None else {*LOGITS, *PROBABILITIES}
        return not known.isdisjoint(names)


def _one_of(there: Sequence[str], what: str, asked: str | None, usual: Sequence[str]) -> str:
    wanted = usual if asked is None else (asked,)
    found = [name for name in wanted if name in there]
    if len(found) == 1:
        return found[0]
    option, listed = f"--{what}-key", ", ".join(map(repr, there)) or "nothing"
    if found:
        raise UnusableError(f"several could be the {what}: {', '.join(map(repr, found))}; choose with {option}")
    hint = f"; choose with {option}" if asked is None else ""
    raise UnusableError(f"expected {what} named {' or '.join(map(repr, wanted))}, got {listed}{hint}")


def _wrong_kind(probabilities: bool, there: Sequence[str]) -> str:
    listed = ", ".join(map(repr, there))
    if probabilities:
        return f"expected probabilities, got {listed}; leave out --probabilities to evaluate the logits"
    return f"expected logits, got {listed}; pass --probabilities to evaluate the probabilities"
