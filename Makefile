# Each target installs what it needs into ./.venv by itself. Needed beforehand: make, and a Python
# of 3.11 or later (`make PYTHON=python3.12 …` picks another than `python3`).
#
#   make test                   the tests
#   make sweeps                 all cases of the tests of which `make test` tries a share
#   make test-web               the operator page in a real browser; as root it installs Chromium
#   make test-terminal          commands at a real terminal; as root it installs tmux
#   make test-integrations [NAMES=mcp] [EDGE=both]
#                               each framework at its lowest and newest version, in ./.venvs
#   make demo                   a run that is killed and picked up again
#   make check                  format, lint, types, layers; lint, types and unit tests of the page
#   make house                  size, tangles and length of the main path, beside their bounds
#   make bench [N=5] [PEERS=1]  N repetitions against a raw floor; PEERS=1 measures peers beside us
#   make torture [N=100]        N random kills of real processes on real files, N/2 rounds of scenes
#   make clean                  removes what the targets made, .venv included

PYTHON ?= python3
PYTEST_WORKERS ?= 3
PYTEST_WEB_WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
SERVER := $(VENV)/.installed-server
BROWSER := $(VENV)/.installed-browser
PAGE := $(VENV)/.installed-page

.DEFAULT_GOAL := test
.PHONY: test sweeps test-core test-web test-terminal test-integrations demo check house bench torture clean
.NOTPARALLEL:

test: $(DEV)
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal $(ARGS)

sweeps: $(DEV)
	HOLDFAST_SWEEPS=whole $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m sweep $(ARGS)

test-core: $(DEV)
	$(BIN)/python -m tests.without_features -n $(PYTEST_WORKERS) $(ARGS)

test-web: $(BROWSER)
	@$(BIN)/python -m tests.web.chromium
	$(BIN)/python -m pytest -n $(PYTEST_WEB_WORKERS) --dist loadfile tests/web $(ARGS)

test-terminal: $(DEV)
	@$(BIN)/python -m tests.terminal.tmux
	$(BIN)/python -m pytest tests/terminal $(ARGS)

test-integrations: $(DEV)
	$(BIN)/python -m tests.integrations run $(NAMES) --edge $(or $(EDGE),both) $(if $(ARGS),-- $(ARGS))

demo: $(CORE)
	$(BIN)/holdfast demo

check: $(BROWSER) $(PAGE)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.web_unit.tools check
	$(BIN)/python -m tests.web_unit.tools test

house: $(DEV)
	@$(BIN)/python -m tests.tidy.house $(ARGS)

bench: $(SERVER)
	$(BIN)/python -m benchmarks $(if $(N),--repeat $(N)) $(if $(PEERS),--peers) $(ARGS)

torture: $(DEV)
	$(BIN)/python -m tests.torture --n $(or $(N),100) $(ARGS)

clean:
	rm -rf $(VENV) .venvs benchmarks/.data benchmarks/.venvs build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf tests/web_unit/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp per set of packages, older than pyproject.toml when that has changed.

$(CORE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(SERVER): pyproject.toml benchmarks/requirements/server.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[postgres]' \
	  --requirement benchmarks/requirements/server.txt
	@touch $@ $(CORE)

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(CORE)

$(BROWSER): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@ $(DEV) $(CORE)

$(PAGE): tests/web_unit/package.json tests/web_unit/package-lock.json | $(BROWSER)
	$(BIN)/python -m tests.web_unit.tools install
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Holdfast needs Python 3.11 or later: make PYTHON=python3.12 …' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
