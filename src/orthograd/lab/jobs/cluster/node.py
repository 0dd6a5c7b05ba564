"""The worker's side of runs in a cluster: does one run and yields its messages."""

from __future__ import annotations

import dataclasses
import getpass
import os
import pickle
import queue
import shutil
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from ..files import sha256
from ..jobs import Event, Job, attempt
from ..store import RunFolder
from .messages import Message, Order, Place, Unshared, packed

WAITING = 256  # events; further progress is dropped


def messages(order: Order) -> Iterator[Message]:
    """Do the run of an order; yield its place, its events, and its result if that must be shipped."""
    yield _place()
    if order.marker is not None and not order.marker.exists():
        yield Unshared()
        return
    order.surroundings.enter()
    try:
        job: Job = pickle.loads(order.job)
    except Exception:  # the run's module cannot be imported here
        yield Event("failed", order.config, error=traceback.format_exc())
        return
    yield from _events(job, order.threads) if order.marker is not None else _shipped(job, order.threads)


def local_store(store: Path) -> Path:
    """This machine's own store for the runs of a remote store; a fixed path, so that runs resume after a crash."""
    return Path(tempfile.gettempdir(), f"orthograd-{getpass.getuser()}", sha256(str(store).encode())[:16])


def _shipped(job: Job, threads: int) -> Iterator[Message]:
    job = dataclasses.replace(job, store=local_store(job.store))
    for event in _events(job, threads):
        if event.type not in ("finished", "skipped"):
            yield event
            continue
        folder = RunFolder(job.store, job.config)
        yield packed(folder)
        shutil.rmtree(folder.path, ignore_errors=True)


def _events(job: Job, threads: int) -> Iterator[Event]:
    """Events of one attempt, up to the last or a busy one."""
    events: queue.Queue[Event] = queue.Queue(WAITING)
    threading.Thread(target=_attempt, args=(job, threads, events), daemon=True).start()
    while not (event := events.get()).is_last and event.type != "busy":
        yield event
    yield event


def _attempt(job: Job, threads: int, events: queue.Queue[Event]) -> None:
    def tell(event: Event) -> None:
        if event.type != "progress":
            events.put(event)
            return
        with suppress(queue.Full):  # training does not wait for a slow driver
            events.put_nowait(event)

    try:
        torch.set_num_threads(threads)  # per thread: OpenMP has a setting for each
        event = attempt(job, tell)
        if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # this process lives on, and others share the GPU
    except BaseException:  # the driver waits for a last event
        event = Event("failed", job.config, error=traceback.format_exc())
    events.put(event)


def _place() -> Place:
    output = None
    with suppress(OSError):  # Linux only
        output = os.readlink("/proc/self/fd/1")
    return Place(socket.gethostname(), os.getpid(), output if output and os.path.isfile(output) else None)
