"""What things cost and how exact they are on this machine: ratios from interleaved runs; seconds of long work alone."""

from .claim import Claim
from .suite import environment, measure, measure_calibration, measure_judging, measure_training

__all__ = ["Claim", "environment", "measure", "measure_calibration", "measure_judging", "measure_training"]
