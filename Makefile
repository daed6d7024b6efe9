# make run   installs umbel into .venv and runs the default comparison
# make test  installs the test extra too, and checks format, lint, types and tests
# make test-all  does that, and runs the tests with processes of Flower and Ray, with a browser, and of whole documents
# make test-thorough  runs the tests of rarer options, of whole data sets and of every table, as before a release
# make test-lowest  runs the tests of `make test` with the lowest versions that pyproject.toml allows, in .venv-lowest
# make test-flower  runs the tests over Flower with the newest flwr that the package index has, in .venv-flower
# make docs  installs the test and docs extras too, and builds the site into docs/_build

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
LONGER := deployment or browser or long

BIN := .venv/bin
# Most modules are never imported: each is compiled when it first is.
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check

# Tests start many processes, which would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 8

.PHONY: run test checks tests test-all test-thorough test-lowest test-flower docs clean

run: .venv/.installed
	$(BIN)/umbel compare rotated-digits --seeds 5 $(ARGS)

# With --jobs 2 tests begin while types are checked.
test: checks tests

checks: .venv/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

tests: .venv/.installed-test
	$(PYTEST) --dist worksteal -m "not ($(LONGER) or thorough)" $(PYTEST_ARGS)

# A file is for one process, as its tests share servers or a browser. They start processes of their own: more than three at once
# are slower on two cores.
test-all: test
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m "($(LONGER)) and not thorough" $(PYTEST_ARGS)

test-thorough: .venv/.installed-test
	$(PYTEST) --dist loadfile -m thorough $(PYTEST_ARGS)

test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/pytest --numprocesses auto --maxprocesses 8 --dist worksteal -m "not ($(LONGER) or thorough)" $(PYTEST_ARGS)

# What else is tested with stays, unless the newest flwr needs another release of it.
test-flower: .venv-flower/.installed
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check --upgrade flwr
	.venv-flower/bin/python -m pip freeze | grep '^flwr=='
	.venv-flower/bin/pytest --numprocesses 2 --dist loadfile -m "not thorough" $(PYTEST_ARGS) tests/flower

docs: .venv/.installed-docs
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "the site is in docs/_build/index.html"

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  f"umbel needs Python 3.11 or newer, and {sys.executable} is {v.major}.{v.minor}; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing umbel into .venv (PyTorch is large: a minute or two;"
	@echo "on Linux without a GPU: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make run)"
	$(PIP) --constraint constraints.txt --editable .
	touch $@

.venv/.installed-test: .venv/.installed
	$(PIP) --constraint constraints.txt --editable ".[test]"
	touch $@

# After the other installation, as two at once disturb one another; and without umbel, whose command may be running (`make docs run`).
.venv/.installed-docs: .venv/.installed-test
	$(PIP) --constraint constraints.txt $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

# uv is what resolves to the lowest versions; the constraints are those of the newest.
.venv-lowest/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip compile --quiet --resolution lowest-direct --python .venv-lowest/bin/python --extra test pyproject.toml --output-file .venv-lowest/versions.txt
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --requirement .venv-lowest/versions.txt --no-deps --editable .
	touch $@

.venv-flower/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[data,flower,metrics]" pytest pytest-xdist hypothesis
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-flower .mypy_cache .pytest_cache .ruff_cache .hypothesis docs/_build docs/fidelity
