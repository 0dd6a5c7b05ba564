"""Real process groups on this machine: all cases of one size share one start of the processes."""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def outcomes(cases, ranks):
    """What each case came to on some rank: its traceback, or nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (ranks, port, cases, folder), nprocs=ranks)
        return {
            case.__name__: "\n".join(path.read_text() for path in sorted(Path(folder).glob(f"{case.__name__}-*")))
            for case in cases
        }


def _work(rank, ranks, port, cases, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    for case in cases:
        try:
            case()
        except Exception:
            Path(folder, f"{case.__name__}-{rank}").write_text(f"rank {rank}: {traceback.format_exc()}")
        dist.barrier()
    dist.destroy_process_group()
