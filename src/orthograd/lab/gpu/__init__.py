"""A GPU as an object (`gpu.py`): slots with CUDA graphs, concurrent runs, precision, and SGD in one pass."""

# Here, where importing it needs no torch: CUDA reads this variable when a process first asks for a GPU.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""How many queues a GPU has for its streams, 32 at most. With CUDA's default of 8, some streams share a queue and wait
for each other's work."""
