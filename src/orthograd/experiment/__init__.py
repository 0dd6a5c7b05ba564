"""Many runs: which there are, where their results lie, and who does them."""

from .cluster import RayCluster
from .events import Event, ExperimentError, Failure
from .executors import Executor, InProcess, execute
from .grid import Grid, Plan
from .jobs import Job, Run, attempt
from .packed import PackedGPU
from .plain import Config, config_hash
from .pool import ProcessPool
from .problems import StoreError
from .run_folder import RunFolder
from .store import Store

__all__ = [
    "Config",
    "Event",
    "Executor",
    "ExperimentError",
    "Failure",
    "Grid",
    "InProcess",
    "Job",
    "PackedGPU",
    "Plan",
    "ProcessPool",
    "RayCluster",
    "Run",
    "RunFolder",
    "Store",
    "StoreError",
    "attempt",
    "config_hash",
    "execute",
]
