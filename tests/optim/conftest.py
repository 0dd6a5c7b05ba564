"""Fixtures for the tests of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture
def several_chunks(monkeypatch):
    """Small tensors have several chunks, as large ones do: the interpreter is slow."""
    monkeypatch.setattr("orthograd.engine.step_plan.SMALLEST_CHUNK", 512)
