"""The predictions of notes/LOG.md, written before the runs, and what the records say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from .records import Record
from .rows import DECAYS

Records = Mapping[str, Record]
ALL_DECAYS = tuple(f"decay_{decay:g}" for decay in DECAYS)
PRECISIONS = {share: tuple(f"float{bits}_{share}" for bits in (16, 32, 64)) for share in (40, 60, 70)}


@dataclass(frozen=True)
class Prediction:
    """A prediction: its text, the rows that it is about, and a check of their records.

    ``note`` adds to the outcome of a prediction that is right.
    """

    text: str
    rows: tuple[str, ...]
    is_right: Callable[..., bool]
    measured: Callable[[Record], str]
    note: Callable[..., str] = lambda *_: ""

    def line(self, records: Records) -> list[str]:
        """The prediction, the values of its rows, and the outcome."""
        chosen = [records[name] for name in self.rows]
        values = "; ".join(f"{record.row.title}: {self.measured(record)}" for record in chosen)
        return [self.text, values, f"right{self.note(*chosen)}" if self.is_right(*chosen) else "wrong"]


def generalizing(record: Record, by: float = inf) -> float:
    """The share of seeds that generalize, up to a step."""
    return fmean(step is not None and step <= by for step in record.steps_to_generalize())


def median_step(record: Record) -> float:
    """The median step at which seeds generalize; infinite for those that do not."""
    return median(inf if step is None else step for step in record.steps_to_generalize())


def _mean(record: Record, measure: str) -> float:
    return fmean(record.at(measure))


def _seeds(record: Record) -> str:
    steps = [step for step in record.steps_to_generalize() if step is not None]
    count = f"{len(steps)} of {len(record.seeds)} seeds"
    return f"{count}, median step {median(steps):,.0f}" if steps else count


def _value(measure: str) -> Callable[[Record], str]:
    return lambda record: f"{100 * _mean(record, measure):.2g}%"


def _none(*records: Record) -> bool:
    return all(generalizing(record) == 0 for record in records)


def _most(share: float, by: float = inf) -> Callable[..., bool]:
    return lambda *records: all(generalizing(record, by) >= share for record in records)


def _is_ordered(*records: Record) -> bool:
    values = [_mean(record, "test_accuracy") for record in records]
    return sorted(set(values)) == values


def _too_small(*records: Record) -> str:
    """A note if the accuracies differ by less than the point that a verdict needs."""
    values = [_mean(record, "test_accuracy") for record in records]
    return "" if max(values) - min(values) >= 0.01 else " by its letter alone: less than a point in all"


def _are_fewer(*records: Record) -> bool:
    """True if a second row has more seeds that generalize than the first, and at least half."""
    first, second = map(generalizing, records)
    return first < second >= 0.5


def _has_lower_ece(adamw: Record, ortho: Record) -> bool:
    gap = _mean(ortho, "test_accuracy") - _mean(ortho, "confidence")
    return gap >= 0.2 and all(a > b for a, b in zip(adamw.at("ece"), ortho.at("ece"), strict=False))


PREDICTIONS = (
    Prediction("1. AdamW: no seed generalizes", ("adamw",), _none, _seeds),
    Prediction(
        "2. ⊥AdamW: at least 90% of seeds, median step between 80 and 250",
        ("ortho_adamw",),
        lambda record: generalizing(record) >= 0.9 and 80 <= median_step(record) <= 250,
        _seeds,
    ),
    Prediction(
        "3. The same with β₂ and ε exchanged: none of AdamW, at least 75% of ⊥AdamW",
        ("adamw_defaults", "ortho_adamw_stated"),
        lambda adamw, ortho: _none(adamw) and generalizing(ortho) >= 0.75,
        _seeds,
    ),
    Prediction(
        "4. Gradient exactly zero at the end: for more than half of AdamW's training pairs, under 10% of ⊥AdamW's",
        ("adamw", "ortho_adamw"),
        lambda adamw, ortho: _mean(adamw, "zero_gradient") > 0.5 and _mean(ortho, "zero_gradient") < 0.1,
        _value("zero_gradient"),
    ),
    Prediction(
        "5. ⊥AdamW is underconfident by at least 0.2, with a lower ECE than AdamW in every seed",
        ("adamw", "ortho_adamw"),
        _has_lower_ece,
        lambda record: f"confidence {_mean(record, 'confidence'):.2f}, ECE {_mean(record, 'ece'):.2f}",
    ),
    Prediction("6a. Weight decay of 8: all seeds", ("decay_8",), _most(1.0), _seeds),
    Prediction(
        "6b. The best decay needs no more steps than ⊥AdamW",
        ("ortho_adamw", *ALL_DECAYS),
        lambda ortho, *decays: min(map(median_step, decays)) <= median_step(ortho),
        _seeds,
    ),
    Prediction("7a. Softmax in float64, 300 steps: no seed", ("adamw_float64",), _none, _seeds),
    Prediction("7b. Softmax in float64, 80,000 steps: at least half", ("float64_long",), _most(0.5), _seeds),
    *(
        Prediction(
            f"8. {share}% of pairs: float16 < float32 < float64 in accuracy",
            names,
            _is_ordered,
            _value("test_accuracy"),
            _too_small,
        )
        for share, names in PRECISIONS.items()
    ),
    Prediction(
        "8. 70% of pairs: no seed in float16, at least half in float64",
        (PRECISIONS[70][0], PRECISIONS[70][2]),
        lambda half, double: _none(half) and generalizing(double) >= 0.5,
        _seeds,
    ),
    Prediction("9a. StableMax, 300 steps: no seed", ("stablemax_short",), _none, _seeds),
    Prediction(
        "9b. StableMax, 100,000 steps: at least 75%, none by step 10,000",
        ("stablemax", "stablemax_product"),
        lambda *records: _most(0.75)(*records) and all(generalizing(record, 10_000) == 0 for record in records),
        _seeds,
    ),
    Prediction(
        "9c. StableMax, parity: at least 75% by step 25,000", ("stablemax_parity",), _most(0.75, 25_000), _seeds
    ),
    Prediction("10a. ⊥SGD with StableMax: at least 75%", ("ortho_sgd",), _most(0.75), _seeds),
    Prediction(
        "10b. Rate 0.005: none of AdamW, at least 75% of ⊥AdamW",
        ("adamw_slower", "ortho_adamw_slower"),
        lambda adamw, ortho: _none(adamw) and generalizing(ortho) >= 0.75,
        _seeds,
    ),
    Prediction(
        "11a. Transformer: ⊥AdamW needs fewer steps than AdamW with weight decay 1.5",
        ("transformer_ortho_adamw", "transformer_decay"),
        lambda ortho, decay: median_step(ortho) < median_step(decay),
        _seeds,
    ),
    Prediction(
        "11b. Transformer: fewer than half without decay",
        ("transformer_adamw",),
        lambda record: generalizing(record) < 0.5,
        _seeds,
    ),
    Prediction(
        "12. Product: more seeds than AdamW, at least half",
        ("product_adamw", "product_ortho_adamw"),
        _are_fewer,
        _seeds,
    ),
    Prediction(
        "12. Sparse parity: more seeds than AdamW, at least half",
        ("parity_adamw", "parity_ortho_adamw"),
        _are_fewer,
        _seeds,
    ),
    Prediction(
        "13. AdamW, 20,000 steps: no seed, and no gradient for more than half of the training pairs",
        ("adamw_long",),
        lambda record: _none(record) and _mean(record, "zero_gradient") > 0.5,
        lambda record: f"{_seeds(record)}, {_value('zero_gradient')(record)} of pairs without gradient",
    ),
)


def predicted(records: Records) -> Iterable[list[str]]:
    """A line for each prediction whose rows all have records."""
    return (each.line(records) for each in PREDICTIONS if all(name in records for name in each.rows))
