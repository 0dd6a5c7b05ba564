"""How honest a classifier's probabilities are: metrics, intervals, reliability curves, and repair after training."""

from .bootstrap import (
    difference_intervals,
    difference_intervals_probabilities,
    intervals,
    intervals_probabilities,
)
from .calibrators import (
    CalibrationWarning,
    Calibrator,
    NotFittedError,
    TemperatureFit,
    TemperatureScaling,
    fit_temperatures,
)
from .conventions import ALL, CONVENTIONS, PAPER, STREAMING
from .evaluation import Evaluation, evaluate, evaluate_probabilities
from .metrics import Metrics
from .reliability import ReliabilityCurve, average

__all__ = [
    "ALL",
    "CONVENTIONS",
    "PAPER",
    "STREAMING",
    "CalibrationWarning",
    "Calibrator",
    "Evaluation",
    "Metrics",
    "NotFittedError",
    "ReliabilityCurve",
    "TemperatureFit",
    "TemperatureScaling",
    "average",
    "difference_intervals",
    "difference_intervals_probabilities",
    "evaluate",
    "evaluate_probabilities",
    "fit_temperatures",
    "intervals",
    "intervals_probabilities",
]
