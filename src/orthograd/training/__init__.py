"""One run: a frozen config in, a trained network and its predictions out, the same bits each time."""

from .arms import ARMS, Arm
from .config import Config
from .run import Task, Trained, initial_model, predicted, train

__all__ = ["ARMS", "Arm", "Config", "Task", "Trained", "initial_model", "predicted", "train"]
