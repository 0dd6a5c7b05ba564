"""Run the tests of files that speak of CUDA in several processes: PYTHONPATH=src python3 -m tests.cuda

For machines with a GPU that lack pytest-xdist. Files that cannot be imported there are named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts="]


def cuda_files() -> list[str]:
    """The files that speak of CUDA."""
    paths = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in paths if "cuda" in path.read_text(encoding="utf-8"))


def tests_of(files: list[str]) -> tuple[list[str], list[str]]:
    """The names of all tests in these files, and a line for each file that cannot be imported."""
    command = [*PYTEST, "--collect-only", "--continue-on-collection-errors", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    errors = [line for line in listed if line.startswith("ERROR ")]
    return [line for line in listed if "::" in line and line not in errors], errors


def run(names: list[str], processes: int) -> int:
    """Every nth test to each process, since neighbours take similar times; how many processes had failures."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number in range(processes):
            part = Path(folder, f"{number}.txt")
            part.write_text("\n".join(names[number::processes]), encoding="utf-8")
            with Path(folder, f"{number}.log").open("w", encoding="utf-8") as log:
                started.append(subprocess.Popen([*PYTEST, f"@{part}"], cwd=ROOT, stdout=log, stderr=log))
        for number, process in enumerate(started):
            process.wait()
            lines = Path(folder, f"{number}.log").read_text(encoding="utf-8").splitlines()
            counts = [line for line in lines if re.search(r"\d (passed|skipped|failed)", line)]
            print(*(lines[-60:] if process.returncode else counts[-1:]), sep="\n", flush=True)
    return sum(process.returncode != 0 for process in started)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("files", nargs="*", help="other files than those that speak of CUDA")
    options = parser.parse_args()
    names, errors = tests_of(options.files or cuda_files())
    print(*errors, f"{len(names)} tests in {options.processes} processes", sep="\n", flush=True)
    sys.exit(run(names, options.processes) > 0 or bool(errors))
