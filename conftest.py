"""How every test starts, and every example of a docstring."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch


def patch_the_language_once_a_launch() -> None:
    """Triton's interpreter patches its language again in every call inside a kernel, which takes half of its time."""
    from triton import language
    from triton.runtime import interpreter

    patch = interpreter._patch_lang

    @cache
    def used_by(function: FunctionType) -> list[ModuleType]:
        return [value for value in function.__globals__.values() if value is language or value is language.core]

    def patch_where_needed(function: FunctionType) -> Any:
        is_done = not any(language.core.is_builtin(module.program_id) for module in used_by(function))
        return interpreter._LangPatchScope() if is_done else patch(function)

    interpreter._patch_lang = patch_where_needed


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the kernels run on the CPU then, slowly; read when triton is imported
    if importlib.util.find_spec("triton"):
        patch_the_language_once_a_launch()

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
