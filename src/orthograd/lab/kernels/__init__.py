"""Triton kernels for networks on Hopper GPUs, and when they apply."""
