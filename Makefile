# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: compare test test-all bench format clean

compare: .venv/ready
	@echo "Nothing to compare yet: training with and without ⊥Grad is not part of this version."
	@echo "What is there: 'make test', 'make bench' for what ⊥Grad costs on this machine, and calibration of predictions:"
	$(BIN)/orthograd evaluate docs/results/digits/overfitted-test.npz docs/results/digits/regularised-test.npz

test: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow"

test-all: test
	$(BIN)/pytest -m slow

bench: .venv/ready
	$(BIN)/orthograd bench

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
