"""Commands of orthograd in processes of their own, forked from one that has imported torch already: they start at once.

The process that forks has nothing but its imports, so each command begins as one from a shell does.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.patience import PATIENCE

SERVER = """
import atexit, gc, importlib, json, os, runpy, sys, threading
for name in sys.argv[1].split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass
gc.freeze()  # or each child's garbage collector would copy the memory of all these modules
for line in sys.stdin:
    order = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(order["folder"])
        for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
            os.dup2(os.open(order[name], os.O_RDONLY if number == 0 else os.O_WRONLY), number)
        sys.path[:0] = order["path"]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # for workers
        # Compiled, code that is changed within a second would be taken for what it was.
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
        sys.argv = ["orthograd", *order["arguments"]]
        code = 0
        try:
            runpy.run_module("orthograd", run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
            if not isinstance(code, int):
                print(code, file=sys.stderr)
                code = 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        # What Python does at its end, but for taking each module apart, which takes longer than most commands.
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
WHOLE = (
    "orthograd.cli.main orthograd.cli.execution orthograd.lab.comparison.plan orthograd.lab.comparison.output "
    "orthograd.figures.severity torch._dynamo"
)
"""What `orthograd compare` imports; the last takes as long as torch, which imports it when an optimizer is made."""


class Forks:
    """A process that forks for each command; used with `with`."""

    def __init__(self, modules: str = WHOLE, *, packages: Sequence[Path] | None = None) -> None:
        """With these modules imported already, where they are there; with these packages instead of all there are."""
        path = sys.path if packages is None else list(map(str, packages))
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "200"}
        command = [sys.executable, *(["-S"] if packages is not None else []), "-c", SERVER, modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=variables, text=True, **pipes)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        """The command in a folder, from which it can import."""
        words = list(map(str, arguments))
        with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
            files = {"stdin": os.devnull, "stdout": stdout.name, "stderr": stderr.name}
            order = {"folder": str(folder), "path": [str(folder)], "arguments": words, **files}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            assert select.select([self._process.stdout], [], [], PATIENCE)[0], f"{words} has not ended"
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(words, code, stdout.read(), stderr.read())
