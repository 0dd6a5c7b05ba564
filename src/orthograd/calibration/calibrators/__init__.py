"""Repair after training: calibrators, fitted on held-out logits."""

from .calibrator import CalibrationWarning, Calibrator, NotFittedError
from .temperature import TemperatureFit, TemperatureScaling, fit_temperatures

__all__ = [
    "CalibrationWarning",
    "Calibrator",
    "NotFittedError",
    "TemperatureFit",
    "TemperatureScaling",
    "fit_temperatures",
]
