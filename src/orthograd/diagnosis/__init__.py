"""Measures where ⊥Grad acts in a network, and why: on one batch, or during training."""

from .one_batch import diagnose
from .recorder import Recorder
from .result import Diagnosis, Row, Shrinkage
from .run_record import chosen_samples, recorded_diagnosis
from .scaling import Pass

__all__ = ["Diagnosis", "Pass", "Recorder", "Row", "Shrinkage", "chosen_samples", "diagnose", "recorded_diagnosis"]
