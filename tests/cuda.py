"""Run the tests of files that speak of CUDA, side by side in several processes, where pytest-xdist is not installed.

PYTHONPATH=src python3 -m tests.cuda --processes 12
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


def test_files() -> list[str]:
    """The files that speak of CUDA."""
    paths = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in paths if "cuda" in path.read_text(encoding="utf-8"))


def tests_of(files: list[str]) -> list[str]:
    """The names of all tests in these files; those of files that cannot be imported here are missing."""
    command = [*PYTEST, "--collect-only", "--continue-on-collection-errors", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "::" in line and not line.startswith("ERROR")]


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("files", nargs="*", help="other files than those that speak of CUDA")
    options = parser.parse_args()
    chosen = tests_of(options.files or test_files())
    print(f"{len(chosen)} tests in {options.processes} processes", flush=True)
    sys.exit(run(chosen, options.processes) > 0)
