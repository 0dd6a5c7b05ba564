"""Where the panels of a figure stand, in inches: margins fit the fonts, so panels stay square and text has room."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMNS = 4
LEFT, RIGHT, BETWEEN = 0.48, 0.14, 0.16
NAME, GAP, HISTOGRAM, FOOT = 0.22, 0.09, 0.52, 0.37
TITLE, LEGEND_LINE = 0.21, 0.145


@dataclass(frozen=True)
class Layout:
    """A grid of square diagrams, each with a histogram under it, between a title and a legend.

    >>> Layout(panels=3, legend_lines=2, has_title=False).width  # fits a page of text
    6.79
    """

    panels: int
    legend_lines: int
    has_title: bool

    @property
    def panel(self) -> float:
        """Side of a diagram: one alone fills a column of text."""
        return 2.63 if self.panels == 1 else 1.95

    @property
    def width(self) -> float:
        """Of the figure."""
        columns = min(self.panels, COLUMNS)
        return LEFT + columns * self.panel + (columns - 1) * BETWEEN + RIGHT

    @property
    def height(self) -> float:
        """Of the figure."""
        rows = -(-self.panels // COLUMNS)
        return TITLE * self.has_title + rows * self._row + LEGEND_LINE * self.legend_lines + 0.08

    def axes(self, figure: Figure, index: int) -> tuple[Axes, Axes]:
        """The diagram and the histogram of a panel."""
        row, column = divmod(index, COLUMNS)
        x = LEFT + column * (self.panel + BETWEEN)
        bottom = self.height - TITLE * self.has_title - row * self._row - NAME - self.panel
        diagram = self._add(figure, x, bottom, self.panel)
        return diagram, self._add(figure, x, bottom - GAP - HISTOGRAM, HISTOGRAM)

    @property
    def _row(self) -> float:
        return NAME + self.panel + GAP + HISTOGRAM + FOOT

    def _add(self, figure: Figure, x: float, y: float, height: float) -> Axes:
        return figure.add_axes((x / self.width, y / self.height, self.panel / self.width, height / self.height))
