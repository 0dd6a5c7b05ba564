"""A Ray cluster of several nodes on this machine, on the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the switch, read at import, that keeps Ray on the loopback interface
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DEDUP_LOGS": "0",
}
os.environ.update(ENVIRONMENT)
SMALL = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False, "node_ip_address": "127.0.0.1"}


def two_nodes():
    """A head with one core, and one more node with one core."""
    cluster = head(cores=1)
    cluster.add_node(**SMALL)
    return cluster


def head(*, cores):
    from ray.cluster_utils import Cluster

    return Cluster(initialize_head=True, head_node_args=SMALL | {"num_cpus": cores})


def has_mount_namespaces():
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


DRIVER = """
import os, shutil, sys
from orthograd.lab.jobs.cluster.executor import RayCluster
from orthograd.lab.jobs.executors import execute
from orthograd.lab.jobs.store import Store
from tests.lab.jobs import toy_runs

def tell(event):
    print(event.type, event.hash, flush=True)

address, folder, runs, epochs, shared, copy = sys.argv[1:]
executor = RayCluster(address, shared_store={"True": True, "False": False, "None": None}[shared])
grid = toy_runs.grid(int(runs), epochs=int(epochs), seconds=0.05)
try:
    execute(grid, toy_runs.train, Store(folder), executor=executor, on_event=tell)
except KeyboardInterrupt:
    sys.exit(130)
if copy:
    shutil.copytree(folder, copy)
"""


class Driver:
    """A process that executes a grid of toy runs in the cluster and prints their events."""

    def __init__(self, address, store, *, runs, epochs, shared=True, copy=""):
        """With ``copy``, the store is on a file system that only this process sees, and is copied there at the end."""
        command = [sys.executable, "-c", DRIVER, address, store.folder, runs, epochs, shared, copy]
        if copy:
            alone = f'mount -t tmpfs tmpfs {store.folder} && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", alone, "sh", *command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(list(map(str, command)), cwd=ROOT, **pipes)
        self.lines = []

    def wait_for(self, word):
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if word in line:
                return
        raise AssertionError(f"no {word}: {self.process.stderr.read()}")

    def end(self, number=None):
        """Its exit code, after a signal if one is given."""
        if number is not None:
            self.process.send_signal(number)
        self.lines += [line.strip() for line in self.process.stdout]
        code = self.process.wait(PATIENCE)
        assert code in (0, 130, -signal.SIGKILL), self.process.stderr.read()
        return code

    def told(self, event_type):
        return [line.split()[1] for line in self.lines if line.split()[0] == event_type]


def workers_at_work():
    """Processes that are doing a run in clusters of this process; other tests may have their own."""
    workers, parents = [], {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            number, title = int(path.name), (path / "cmdline").read_bytes()
            parents[number] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if title.startswith(b"ray::messages"):
            workers.append(number)
    return [number for number in workers if os.getpid() in _ancestors(number, parents)]


def _ancestors(number, parents):
    while number := parents.get(number, 0):
        yield number


def wait_until(is_so, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
