"""A GPU as an object (`gpu.py`): slots with CUDA graphs, concurrent runs, precision, and fused SGD."""

# Here, where importing it needs no torch: CUDA reads this variable when a process first asks for a GPU.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""Number of hardware queues for CUDA streams, at most 32. With CUDA's default of 8, some streams share a queue and wait
for each other."""
