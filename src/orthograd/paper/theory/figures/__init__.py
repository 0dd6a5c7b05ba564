"""One figure for each demonstration, drawn from its record alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from .boundary import boundary_figure
from .convergence import convergence_figure
from .length import length_figure
from .renormalization import renormalization_figure
from .wandering import wandering_figure

FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "convergence": convergence_figure,
    "wandering": wandering_figure,
    "length": length_figure,
    "renormalization": renormalization_figure,
    "boundary": boundary_figure,
}

__all__ = ["FIGURES"]
