# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # set, every process would compile torch anew: it is installed as source
# Files of tests, one process a core. In their order: those that fork come before JAX, which has threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: compare test test-all reproduce reproduce-check docs bench format clean

compare: .venv/ready
	$(BIN)/orthograd compare

test: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test-all: test
	$(PYTEST) -m slow

reproduce: .venv/ready
	$(BIN)/orthograd reproduce paper --device cuda --export docs/results/reproduction

reproduce-check: .venv/ready
	$(BIN)/python -m orthograd.paper.document --check

docs: .venv/ready
	$(BIN)/python -m orthograd.paper.studies.documents
	$(BIN)/python -m orthograd.paper.document

bench: .venv/ready
	$(BIN)/orthograd bench

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'  # Python compiles what is used
	@touch $@
