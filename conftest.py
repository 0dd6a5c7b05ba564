"""How every test starts, and every example of a docstring."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the kernels run on the CPU then, slowly; read when triton is imported

# What a script starts in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("hypothesis"):  # machines with a GPU may have no more than torch and pytest
    from hypothesis import settings

    # The same examples every time, so that a red run speaks of the change and not of the dice, and no clock.
    # Throwing them anew, now and then: pytest --hypothesis-profile=dice --hypothesis-seed=7
    settings.register_profile("same", derandomize=True, deadline=None)
    settings.register_profile("dice", deadline=None)
    settings.load_profile("same")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take what the imports made, which stays, out of the garbage collector: each of its passes took a second."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """The same random numbers each time; and as many threads as before, of which `orthograd bench` takes two."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
