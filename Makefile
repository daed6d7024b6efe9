# make run   installs umbel into .venv and runs the default comparison
# make test  installs the test extra too, and checks format, lint, types and tests

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test clean

run: .venv/.installed
	$(BIN)/umbel compare rotated-digits --seeds 5 $(ARGS)

test: .venv/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadgroup $(PYTEST_ARGS)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  f"umbel needs Python 3.11 or newer, and {sys.executable} is {v.major}.{v.minor}; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing umbel into .venv (PyTorch is large: a minute or two)"
	$(PIP) --constraint constraints.txt --editable .
	touch $@

.venv/.installed-test: .venv/.installed
	$(PIP) --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
