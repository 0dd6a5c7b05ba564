"""Where ⊥Grad acts in a network, and why not elsewhere: measured on one batch, or along a training."""

from .one_batch import diagnose
from .recorder import Recorder
from .result import Diagnosis, Row
from .run_record import chosen_samples, recorded_diagnosis

__all__ = ["Diagnosis", "Recorder", "Row", "chosen_samples", "diagnose", "recorded_diagnosis"]
