"""What ⊥Grad costs and how exact it is on this machine: ratios from interleaved runs, never bare seconds."""

from .claim import Claim
from .suite import environment, measure

__all__ = ["Claim", "environment", "measure"]
