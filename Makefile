# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# Always with the constraints: another version of torch would replace the one that is there. Python compiles what is used.
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable
unexport PYTHONDONTWRITEBYTECODE  # set, every process would compile torch anew: it is installed as source
# Files of tests, one process a core. In their order: those that fork come before JAX, which has threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
SITE := docs/_build

.PHONY: compare check test test-all reproduce reproduce-check tables optimizers docs bench format clean

compare: .venv/lab
	$(BIN)/orthograd compare

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(PYTEST) -m "not slow"

# In one run: collecting the tests imports torch, JAX and transformers, and slow tests use the fixtures of the others.
test-all: check
	$(PYTEST)

reproduce: .venv/lab
	$(BIN)/orthograd reproduce paper --device cuda --export docs/results/reproduction

reproduce-check: .venv/lab
	$(BIN)/python -m orthograd.paper.document --check

tables: .venv/lab
	$(BIN)/python -m orthograd.paper.studies.documents
	$(BIN)/python -m orthograd.paper.document

optimizers: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.optimizer_contract

docs: .venv/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet --jobs auto \
		--doctree-dir $(SITE)/doctrees docs $(SITE)/html
	@echo "open $(SITE)/html/index.html"

bench: .venv/dev
	$(BIN)/orthograd bench

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist $(SITE)

.venv/python:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/lab .venv/dev .venv/docs: .venv/%: pyproject.toml constraints.txt | .venv/python
	$(INSTALL) '.[$*]'
	@touch $@
