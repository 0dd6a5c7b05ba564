"""Figures and pages of what was measured: nothing is computed here, and nothing is trained."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .composition import reliability_figure
    from .reliability import draw_confidences, draw_reliability
    from .severity import severity_figure
    from .style import save_figure

__all__ = ["draw_confidences", "draw_reliability", "reliability_figure", "save_figure", "severity_figure"]

# Only figures wait for matplotlib: tables and pages do without.
__getattr__ = lazily(
    __name__,
    {
        "reliability_figure": "composition",
        "draw_confidences": "reliability",
        "draw_reliability": "reliability",
        "severity_figure": "severity",
        "save_figure": "style",
    },
)
