"""Claim: a ⊥Grad step takes at most twice as long as the paper's SGD step (2.2 times inside a CUDA graph)."""

from _claims import check

from orthograd.lab.bench.cost import graph_cost, step_cost

check(step_cost, on_cuda=[graph_cost])
