"""The driver's side of runs in a cluster: what is sent out next, and what to make of each message."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from .. import files
from ..files import StoreError
from ..jobs import Agenda, Event, Job, OnEvent
from ..store import RunFolder
from .fleet import Fleet, Flight, Lost, pickled
from .orders import Message, Order, Surroundings, Unshared
from .shipment import Shipment, unpack

PATIENCE = 60.0  # seconds until a shared disk must show here what a worker has written there


class Options(Protocol):
    """What a driver needs to know of its executor."""

    retries: int
    cpus_per_run: float
    shared_store: bool | None


class Driver:
    """Brings every job to its last event by way of a fleet."""

    def __init__(
        self, jobs: Sequence[Job], fleet: Fleet, options: Options, marker: Path, gpus: float, on_event: OnEvent
    ) -> None:
        self._agenda, self._fleet, self._options, self._on_event = Agenda(jobs), fleet, options, on_event
        self._marker = None if options.shared_store is False else marker
        self._gpus, self._surroundings = gpus, Surroundings.here()
        self._deaths: Counter[str] = Counter()

    @property
    def is_at_work(self) -> bool:
        """Whether some job has not had its last event."""
        return bool(self._agenda or self._fleet.size)

    def advance(self, limit: int) -> None:
        """Send out what there is room for, then take in what was told meanwhile."""
        while self._fleet.size < limit and (job := self._agenda.take()):
            self._send(job)
        wait = self._agenda.seconds_to_wait() if self._fleet.size < limit else None
        if not self._fleet.size:
            time.sleep(wait or 0.0)
        # A wait without an end would not notice that machines have joined.
        for flight, message in self._fleet.messages(1.0 if wait is None else min(wait, 1.0)):
            if isinstance(message, Event) and message.kind in ("started", "progress"):
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
        """Hold the folder for a worker that cannot; False if the run is done, or busy, or cannot be done."""
        try:
            if not claim.enter_context(folder.claim()):
                self._postpone(job)
                return False
            if folder.is_finished:
                folder.record()  # raises where it is not sound
                self._on_event(Event("skipped", job.config))
                return False
        except StoreError as error:
            self._fail(folder, str(error))
            return False
        return True

    def _end(self, flight: Flight, message: Message | Lost) -> None:
        """What the last message of an attempt means."""
        if isinstance(message, Lost):
            self._lost(flight, message)
        elif isinstance(message, Unshared):
            self._unshared(flight)
        elif isinstance(message, Shipment):
            self._arrived(flight, message)
        elif isinstance(message, Event) and message.kind == "busy":
            self._postpone(flight.job)
        elif isinstance(message, Event) and message.kind == "failed":
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
            self._fail(
                flight.folder, f"expected the store {flight.job.store} to be seen there, got none ({flight.place})"
            )
            return
        self._marker = None  # from here on results are shipped
        self._again(flight.job)

    def _arrived(self, flight: Flight, shipment: Shipment) -> None:
        try:
            unpack(shipment, flight.folder)
        except StoreError as error:
            self._fail(flight.folder, str(error))
            return
        self._on_event(Event("finished", flight.job.config))

    def _written(self, flight: Flight, event: Event) -> None:
        """The worker has written the record; here it may be seen a little later."""
        deadline = time.monotonic() + PATIENCE
        while not flight.folder.is_finished:
            if time.monotonic() > deadline:
                self._fail(flight.folder, f"expected the record in {flight.folder.path}, got none yet ({flight.place})")
                return
            files.flush_folder(flight.folder.path)  # opening it makes NFS ask its server anew
            time.sleep(0.05)
        self._on_event(event)

    def _fail(self, folder: RunFolder, error: str) -> None:
        self._on_event(Event("failed", folder.config, error=error))

    def _postpone(self, job: Job) -> None:
        event = Event("busy", job.config)
        if self._agenda.postpone(job, event):
            self._on_event(event)

    def _again(self, job: Job) -> None:
        """Take a run up again after a pause, of which nothing is told."""
        self._agenda.postpone(job, Event("busy", job.config))
