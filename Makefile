# Everything runs from .venv, which is made at need. `make PYTHON=/path/to/python3` chooses the Python that makes it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS   ?=
export PYTHONDONTWRITEBYTECODE := # what pytest has compiled is kept: else each of its processes takes ten seconds more

.PHONY: help demo bench bench-short chaos docs faces test test-all lint types wheel-test
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:  ## list the targets
	@echo "make TARGET [ARGS='…']"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.installed  ## show the life of messages, live, on the embedded store (ARGS: of `delayq demo`)
	@$(BIN)/delayq demo $(ARGS)

bench: $(VENV)/.installed  ## compare delayq with its peers, which takes long (ARGS: such as --only drain; see --help)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-short: $(VENV)/.installed  ## find out within a minute whether delayq has become slower (ARGS: --record)
	@$(BIN)/python -m benchmarks --short $(ARGS)

chaos: $(VENV)/.installed-dev  ## play faults on real servers, for long (ARGS: such as --only kill_consumers; see --help)
	@$(BIN)/python -m tests.harness.chaos $(ARGS)

test: $(VENV)/.installed-dev  ## run the tests that tell whether a change is sound, in minutes (ARGS: of pytest)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 -m "not full" $(ARGS)

test-all: $(VENV)/.installed-dev  ## run all tests: also those of Spark, browsers, clusters, older servers (ARGS: of pytest)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 $(ARGS)

faces: $(VENV)/.installed-dev  ## make the blocking API of the async one, delayq/aio, after a change there
	@$(BIN)/python -m tools.faces

docs: $(VENV)/.installed-dev  ## build the site in build/site (ARGS: of sphinx)
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet $(ARGS) docs build/site
	@echo "built: build/site/index.html"

lint: $(VENV)/.installed-dev  ## ruff: rules and format (ARGS: of both, such as paths)
	$(BIN)/ruff check $(ARGS)
	$(BIN)/ruff format --check $(ARGS)

types: $(VENV)/.installed-dev  ## mypy, strict
	$(BIN)/mypy $(ARGS)

wheel-test: $(VENV)/.installed-dev  ## build the wheel and run the tests on it, outside the checkout (ARGS: of pytest)
	$(BIN)/python tests/wheel/run.py $(ARGS)

# The stamps below make a second call quick: pip runs again only when pyproject.toml or setup.py has changed.

$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/.made
	@echo "installing delayq into $(VENV) …"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml setup.py | $(VENV)/.made
	@echo "installing delayq and what its tests need into $(VENV) …"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "no $(PYTHON) here: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "delayq needs Python 3.11 or newer, $(PYTHON) is `$(PYTHON) --version 2>&1`:" \
	    "name a newer one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module: install it (Debian, Ubuntu: apt install python3-venv)," \
	    "or name another Python: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
