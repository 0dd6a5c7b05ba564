"""Runs on the machines of a Ray cluster."""

from .executor import RayCluster

__all__ = ["RayCluster"]
