"""Claim: projecting gradients takes less than 1 MiB at any size of model, and never waits for the GPU."""

from _claims import check

from orthograd.lab.bench.memory import extra_memory, synchronisations

check(extra_memory, on_cuda=[synchronisations])
