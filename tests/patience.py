"""How long tests wait for other processes."""

PATIENCE = 300.0
"""Seconds until something counts as hung, far more than it takes anywhere: how fast it is, benchmarks measure."""
