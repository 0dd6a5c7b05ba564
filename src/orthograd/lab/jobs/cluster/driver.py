"""The driver's side of runs in a cluster: sends runs out and handles their messages."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...files import FileError, flush_folder
from ..jobs import Agenda, Event, Job, OnEvent
from ..store import RunFolder
from .messages import Message, Order, Place, Shipment, Surroundings, Unshared, unpack
from .node import messages

UNREAD = 64  # most messages of one run that wait for the driver
PATIENCE = 60.0  # seconds for a file that a worker wrote to appear on a shared disk


@dataclass(frozen=True)
class Lost:
    """A run without a last event: its worker or machine died, or its order could not be read."""

    reason: str
    is_death: bool


@dataclass(eq=False)
class Flight:
    """One run in progress; ``claim`` is the driver's claim on its folder, if the worker cannot claim it."""

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
        # The driver counts deaths and retries, so that it can report them; a process is kept for the next run.
        self._task = ray.remote(max_retries=0, max_calls=0, num_returns="streaming", num_cpus=cpus)(messages)

    @property
    def size(self) -> int:
        """Number of runs in progress or queued."""
        return len(self._flights)

    def send(self, order: Order, job: Job, folder: RunFolder, claim: ExitStack, *, gpus: float) -> None:
        """Start a run."""
        options = {"num_gpus": gpus, "_generator_backpressure_num_objects": UNREAD}
        stream = self._task.options(**options).remote(order)
        self._flights[stream] = Flight(job, folder, stream, claim)

    def messages(self, timeout: float) -> Iterator[tuple[Flight, Message | Lost]]:
        """One message from each run that has some; wait for the first, at most until the timeout in seconds."""
        if not self._flights:
            return
        ready, _ = self._ray.wait(list(self._flights), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = self._ray.wait(list(self._flights), num_returns=len(self._flights), timeout=0)
        for flight in [self._flights[stream] for stream in ready]:
            if (message := self._next(flight)) is not None:
                yield flight, message

    def land(self, flight: Flight) -> None:
        """Drop a run after its last message, and release its folder."""
        self._flights.pop(flight.stream, None)
        flight.claim.close()

    def stop(self) -> None:
        """End all runs at once; their checkpoints stay."""
        for flight in list(self._flights.values()):
            with suppress(Exception):
                self._ray.cancel(flight.stream, force=True)
            self.land(flight)

    def _next(self, flight: Flight) -> Message | Lost | None:
        errors = self._ray.exceptions
        try:
            message: Message = self._ray.get(next(flight.stream))
        except StopIteration:
            return Lost("the worker reported no end of the run", is_death=True)
        except errors.RayTaskError as error:
            return Lost(str(error), is_death=False)
        except errors.RayError as error:
            return Lost(f"{type(error).__name__}: {error}", is_death=True)
        if isinstance(message, Place):
            flight.place = message
            return None
        return message


def pickled(job: Job) -> bytes:
    """Pickle a job by reference to its module, or by value if it is in the main script."""
    from ray import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(job)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise TypeError(f"expected a run that can be sent to other machines, got {job.run!r}: {error}") from error
    return data


class Options(Protocol):
    """Settings of the executor that a driver reads."""

    retries: int
    cpus_per_run: float
    shared_store: bool | None


class Driver:
    """Brings every job to its last event through a fleet."""

    def __init__(
        self, jobs: Sequence[Job], fleet: Fleet, options: Options, marker: Path, gpus: float, on_event: OnEvent
    ) -> None:
        self._agenda, self._fleet, self._options, self._on_event = Agenda(jobs), fleet, options, on_event
        self._marker = None if options.shared_store is False else marker
        self._gpus, self._surroundings = gpus, Surroundings.here()
        self._deaths: Counter[str] = Counter()

    @property
    def is_at_work(self) -> bool:
        """True while a job has not had its last event."""
        return bool(self._agenda or self._fleet.size)

    def advance(self, limit: int) -> None:
        """Start as many runs as the limit allows, then handle the messages that have arrived."""
        while self._fleet.size < limit and (job := self._agenda.take()):
            self._send(job)
        wait = self._agenda.seconds_to_wait() if self._fleet.size < limit else None
        if not self._fleet.size:
            time.sleep(wait or 0.0)
        # Wait at most a second, to notice machines that join.
        for flight, message in self._fleet.messages(1.0 if wait is None else min(wait, 1.0)):
            if isinstance(message, Event) and message.type in ("started", "progress"):
                self._on_event(message)
                continue
            try:
                self._end(flight, message)
            finally:
                self._fleet.land(flight)

    def _send(self, job: Job) -> None:
        folder, claim = RunFolder(job.store, job.config), ExitStack()
        if self._marker is None and not self._is_claimed(job, folder, claim):
            claim.close()
            return
        threads = max(1, int(self._options.cpus_per_run))
        order = Order(pickled(job), job.config, self._marker, self._surroundings, threads)
        self._fleet.send(order, job, folder, claim, gpus=self._gpus)

    def _is_claimed(self, job: Job, folder: RunFolder, claim: ExitStack) -> bool:
        """Claim the folder for a worker that cannot; False if the run is finished, busy or damaged."""
        try:
            if not claim.enter_context(folder.claim()):
                self._postpone(job)
                return False
            if folder.is_finished:
                folder.record()  # raises if damaged
                self._on_event(Event("skipped", job.config))
                return False
        except FileError as error:
            self._fail(folder, str(error))
            return False
        return True

    def _end(self, flight: Flight, message: Message | Lost) -> None:
        """Handle the last message of an attempt."""
        if isinstance(message, Lost):
            self._lost(flight, message)
        elif isinstance(message, Unshared):
            self._unshared(flight)
        elif isinstance(message, Shipment):
            self._arrived(flight, message)
        elif isinstance(message, Event) and message.type == "busy":
            self._postpone(flight.job)
        elif isinstance(message, Event) and message.type == "failed":
            self._fail(flight.folder, f"({flight.place})\n{message.error}")
        elif isinstance(message, Event):
            self._written(flight, message)

    def _lost(self, flight: Flight, lost: Lost) -> None:
        self._deaths[flight.folder.hash] += 1
        deaths = self._deaths[flight.folder.hash]
        if lost.is_death and deaths <= self._options.retries:
            self._again(flight.job)
            return
        times = f"the worker died, in {deaths} of {deaths} attempts: " if lost.is_death else ""
        place = f"({flight.place})\n" if flight.place else ""
        self._fail(flight.folder, f"{place}{times}{lost.reason}")

    def _unshared(self, flight: Flight) -> None:
        if self._options.shared_store:
            self._fail(flight.folder, f"expected the worker to see the store {flight.job.store} ({flight.place})")
            return
        self._marker = None  # from now on results are shipped
        self._again(flight.job)

    def _arrived(self, flight: Flight, shipment: Shipment) -> None:
        try:
            unpack(shipment, flight.folder)
        except FileError as error:
            self._fail(flight.folder, str(error))
            return
        self._on_event(Event("finished", flight.job.config))

    def _written(self, flight: Flight, event: Event) -> None:
        """Wait for the record that the worker has written: a shared disk may show it later."""
        deadline = time.monotonic() + PATIENCE
        while not flight.folder.is_finished:
            if time.monotonic() > deadline:
                self._fail(flight.folder, f"expected the record in {flight.folder.path}, got none yet ({flight.place})")
                return
            flush_folder(flight.folder.path)  # opening it makes NFS ask its server again
            time.sleep(0.05)
        # After a death, a record found is that of this run: its worker died between the record and the event.
        self._on_event(Event("finished", event.config) if self._deaths[flight.folder.hash] else event)

    def _fail(self, folder: RunFolder, error: str) -> None:
        self._on_event(Event("failed", folder.config, error=error))

    def _postpone(self, job: Job) -> None:
        event = Event("busy", job.config)
        if self._agenda.postpone(job, event):
            self._on_event(event)

    def _again(self, job: Job) -> None:
        """Retry a run after a pause, without an event."""
        self._agenda.postpone(job, Event("busy", job.config))
