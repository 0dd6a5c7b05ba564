"""How many queues a GPU has for its streams: of CUDA's eight some share one, and wait for what others have queued."""

from __future__ import annotations

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""A variable of the environment that CUDA reads when a process first asks for a GPU, and the most it may be."""
