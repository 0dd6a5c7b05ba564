"""Run the tests of files that speak of CUDA in several processes: PYTHONPATH=src python3 -m tests.cuda

For machines with a GPU that lack pytest-xdist. Files that cannot be imported there are named. What fails beside others
may have lacked memory on the GPU, so it runs once more by itself, and that counts.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts="]
# Many processes with a thread for each core slow each other down. Some tests start Python in another folder.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}


def cuda_files() -> list[str]:
    """The files that speak of CUDA."""
    paths = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in paths if "cuda" in path.read_text(encoding="utf-8"))


def tests_of(files: list[str]) -> tuple[list[str], list[str]]:
    """The names of all tests in these files, and a line for each file that cannot be imported."""
    command = [*PYTEST, "--collect-only", "--continue-on-collection-errors", *files]
    listed = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True).stdout.splitlines()
    errors = [line for line in listed if line.startswith("ERROR ")]
    return [line for line in listed if "::" in line and line not in errors], errors


def run(names: list[str], processes: int) -> list[str]:
    """Every nth test to each process, since neighbours take similar times. The tests that failed."""
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number in range(min(processes, len(names))):
            part = Path(folder, f"{number}.txt")
            part.write_text("\n".join(names[number::processes]), encoding="utf-8")
            command = [*PYTEST, "-rfE", "--show-capture=no", f"@{part}"]
            with Path(folder, f"{number}.log").open("w", encoding="utf-8") as log:
                started.append(subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=log, stderr=log))
        for number, process in enumerate(started):
            process.wait()
            text = Path(folder, f"{number}.log").read_text(encoding="utf-8")
            counts = [line for line in text.splitlines() if re.search(r"\d (passed|skipped|failed|error)", line)]
            print(*([text] if process.returncode else counts[-1:]), sep="\n", flush=True)
            own = names[number::processes]
            known = [name for name in own if re.search(rf"(?m)^(FAILED|ERROR) {re.escape(name)}( |$)", text)]
            # A process that broke off has named nothing: all of its tests are open.
            failed += known or (own if process.returncode else [])
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("files", nargs="*", help="other files than those that speak of CUDA")
    options = parser.parse_args()
    names, errors = tests_of(options.files or cuda_files())
    print(*errors, f"{len(names)} tests in {options.processes} processes", sep="\n", flush=True)
    failed = run(names, options.processes)
    if failed:
        print(f"{len(failed)} tests once more, one after another:", *failed, sep="\n", flush=True)
        failed = run(failed, 1)
    sys.exit(bool(failed or errors))
