"""Training on one GPU: CUDA graphs, concurrent runs, precision, and SGD in one pass."""
