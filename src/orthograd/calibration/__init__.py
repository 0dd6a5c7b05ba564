"""Calibration of classifiers: metrics, intervals, reliability curves, and calibrators fitted after training."""

from .bootstrap import difference_intervals, difference_intervals_probabilities, intervals, intervals_probabilities
from .calibrated import Calibrated
from .calibrators.calibrator import CalibrationWarning, Calibrator, NotFittedError
from .calibrators.ensemble import EnsembleTemperatureScaling, ensemble_logits
from .calibrators.one_vs_rest import HistogramBinning, IsotonicCalibration, PlattScaling
from .calibrators.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    VectorScaling,
)
from .calibrators.temperature import TemperatureFit, TemperatureScaling, fit_temperatures
from .cross_fitting import CrossFit, cross_fit
from .evaluation import Evaluation, evaluate, evaluate_probabilities
from .inputs import InputWarning
from .metrics import ALL, CONVENTIONS, PAPER, STREAMING, Convention, Metrics, MultiLabelMetrics
from .refinement import Decomposition, decomposition
from .reliability import ReliabilityCurve, average
from .unbinned import accuracy_at_confidence, augrc, aurc, risk_at_coverage, risk_coverage

__all__ = [
    "ALL",
    "CONVENTIONS",
    "PAPER",
    "STREAMING",
    "BiasCorrectedTemperatureScaling",
    "Calibrated",
    "CalibrationWarning",
    "Calibrator",
    "Convention",
    "CrossFit",
    "Decomposition",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "Evaluation",
    "HistogramBinning",
    "InputWarning",
    "IsotonicCalibration",
    "MatrixScaling",
    "Metrics",
    "MultiLabelMetrics",
    "NotFittedError",
    "PlattScaling",
    "ReliabilityCurve",
    "StructuredMatrixScaling",
    "TemperatureFit",
    "TemperatureScaling",
    "VectorScaling",
    "accuracy_at_confidence",
    "augrc",
    "aurc",
    "average",
    "cross_fit",
    "decomposition",
    "difference_intervals",
    "difference_intervals_probabilities",
    "ensemble_logits",
    "evaluate",
    "evaluate_probabilities",
    "fit_temperatures",
    "intervals",
    "intervals_probabilities",
    "risk_at_coverage",
    "risk_coverage",
]
