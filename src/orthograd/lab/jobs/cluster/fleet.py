"""The runs that are at work in the cluster, and what they tell."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ..jobs import Job
from ..store import RunFolder
from .node import messages
from .orders import Message, Order, Place

UNREAD = 64  # messages of one run that may wait for the driver


@dataclass(frozen=True)
class Lost:
    """A run came to no end: its worker or its machine died, or the order could not be read there."""

    reason: str
    is_death: bool


@dataclass(eq=False)
class Flight:
    """One run at work; `claim` is the driver's hold on its folder, where the worker cannot have it."""

    job: Job
    folder: RunFolder
    stream: Any
    claim: ExitStack
    place: Place | None = None


class Fleet:
    """Ray tasks, each a stream of messages."""

    def __init__(self, ray: Any, *, cpus: float) -> None:
        self._ray = ray
        self._flights: dict[Any, Flight] = {}
        # Deaths are counted and retried by the driver, who can say so; a process is kept for the next run.
        self._task = ray.remote(max_retries=0, max_calls=0, num_returns="streaming", num_cpus=cpus)(messages)

    @property
    def size(self) -> int:
        """How many runs are at work or wait for a place."""
        return len(self._flights)

    def send(self, order: Order, job: Job, folder: RunFolder, claim: ExitStack, *, gpus: float) -> None:
        """Start a run."""
        options = {"num_gpus": gpus, "_generator_backpressure_num_objects": UNREAD}
        stream = self._task.options(**options).remote(order)
        self._flights[stream] = Flight(job, folder, stream, claim)

    def messages(self, timeout: float) -> Iterator[tuple[Flight, Message | Lost]]:
        """One from each run that has some, waiting no longer than the timeout in seconds for the first."""
        if not self._flights:
            return
        ready, _ = self._ray.wait(list(self._flights), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = self._ray.wait(list(self._flights), num_returns=len(self._flights), timeout=0)
        for flight in [self._flights[stream] for stream in ready]:
            if (message := self._next(flight)) is not None:
                yield flight, message

    def land(self, flight: Flight) -> None:
        """Forget a run that has told its last, and let go of its folder."""
        self._flights.pop(flight.stream, None)
        flight.claim.close()

    def stop(self) -> None:
        """End all runs at once; what they have saved stays."""
        for flight in list(self._flights.values()):
            with suppress(Exception):
                self._ray.cancel(flight.stream, force=True)
            self.land(flight)

    def _next(self, flight: Flight) -> Message | Lost | None:
        errors = self._ray.exceptions
        try:
            message: Message = self._ray.get(next(flight.stream))
        except StopIteration:
            return Lost("the worker told no end of the run", is_death=True)
        except errors.RayTaskError as error:
            return Lost(str(error), is_death=False)
        except errors.RayError as error:
            return Lost(f"{type(error).__name__}: {error}", is_death=True)
        if isinstance(message, Place):
            flight.place = message
            return None
        return message


def pickled(job: Job) -> bytes:
    """By reference to its module where that can be imported, else by value, as functions of the main script need."""
    from ray import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(job)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise TypeError(f"expected a run that can be sent to other machines, got {job.run!r}: {error}") from error
    return data
