"""⊥Grad at speed: the mathematics of `orthograd.projection` for CPU, CUDA and sharded tensors."""

from .projector import Projector, addresses

__all__ = ["Projector", "addresses"]
