"""One run: a frozen config in, a trained network and its predictions out, the same bits each time."""

from typing import TYPE_CHECKING

from ..lazy import lazily
from .arms import ARMS, Arm
from .config import RECIPES, Config

if TYPE_CHECKING:
    from .prediction import predicted
    from .run import Trained, train, training
    from .task import Task, initial_model

__all__ = ["ARMS", "RECIPES", "Arm", "Config", "Task", "Trained", "initial_model", "predicted", "train", "training"]

__getattr__ = lazily(
    __name__,
    {
        "predicted": "prediction",
        "train": "run",
        "training": "run",
        "Trained": "run",
        "Task": "task",
        "initial_model": "task",
    },
)
