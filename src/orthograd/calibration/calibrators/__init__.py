"""Repair after training: calibrators, fitted on held-out logits."""

from .calibrator import CalibrationWarning, Calibrator, NotFittedError
from .isotonic import IsotonicCalibration
from .one_vs_rest import HistogramBinning, PlattScaling
from .scaling import DirichletCalibration, MatrixScaling, VectorScaling
from .temperature import TemperatureFit, TemperatureScaling, fit_temperatures

__all__ = [
    "CalibrationWarning",
    "Calibrator",
    "DirichletCalibration",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "NotFittedError",
    "PlattScaling",
    "TemperatureFit",
    "TemperatureScaling",
    "VectorScaling",
    "fit_temperatures",
]
