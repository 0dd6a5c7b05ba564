"""Figures by matplotlib: reliability diagrams, curves over severity, heat maps."""
