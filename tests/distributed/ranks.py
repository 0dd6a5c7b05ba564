"""Real process groups on this machine: all cases of one size share one start of the processes."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from tests.patience import PATIENCE


def outcomes(cases, ranks):
    """What each case came to on some rank: its traceback, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        on_ranks(ranks, _each, cases, folder)
        return {
            case.__name__: "\n".join(path.read_text() for path in sorted(Path(folder).glob(f"{case.__name__}-*")))
            for case in cases
        }


def on_ranks(ranks, work, *arguments):
    """`work(*arguments)` in as many processes of one gloo group; an error in one of them is raised here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):  # which they would all choose, where there is one
        torch.multiprocessing.spawn(_rank, (ranks, port, work, arguments), nprocs=ranks)


def _rank(rank, ranks, port, work, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=PATIENCE))
    work(*arguments)
    dist.barrier()  # a rank that leaves early would cut the others off
    dist.destroy_process_group()
    # Threads of gloo that still hold a tensor when Python winds itself up abort the process, now and then
    # (pytorch issue 190489). All is done and written here, so leave without that.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _each(cases, folder):
    for case in cases:
        try:
            case()
        except Exception:
            rank = dist.get_rank()
            Path(folder, f"{case.__name__}-{rank}").write_text(f"rank {rank}: {traceback.format_exc()}")
        dist.barrier()
