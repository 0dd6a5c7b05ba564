"""Figures of what was measured: nothing is computed here, and nothing is trained."""

from .composition import reliability_figure
from .reliability import draw_confidences, draw_reliability
from .severity import severity_figure
from .style import save_figure

__all__ = ["draw_confidences", "draw_reliability", "reliability_figure", "save_figure", "severity_figure"]
