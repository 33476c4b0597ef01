# Tidegate, from a fresh clone. `make` alone lists what there is.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
TIDEGATE := $(BIN)/tidegate
# How many tests run at a time, each worker with a Spark session of its own; 0: one after another.
WORKERS ?= 3
# Options of the commands: make demo ARGS="--rows 100000", make test ARGS="-k gate"
ARGS ?=

# Tests start hundreds of Python processes: each would compile what it imports again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations=10

ALONGSIDE = $(MAKE) --no-print-directory --jobs 2 --output-sync=target

.PHONY: help install install-dev demo ui test test-fast test-all check types style compiled format bench soak clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Make .venv and install Tidegate (1 to 6 minutes, once)
	@PYTHON="$(PYTHON)" scripts/install.sh

install-dev:
	@PYTHON="$(PYTHON)" scripts/install.sh dev

demo: install ## Join 500,000 clicks to a MariaDB table that is still loading, and prove the result
	@$(TIDEGATE) demo $(ARGS)

ui: install ## Open Dagster on the demo's lake
	@$(TIDEGATE) ui --demo $(ARGS)

check: install-dev ## Lint, format, types, import rules
	@$(ALONGSIDE) types style

types:
	@$(BIN)/pyright --pythonpath $(BIN)/python

style:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

# Else each worker would compile all tests for itself. What is wrong with one, the run itself says.
compiled:
	@$(BIN)/python -m pytest --collect-only -qq $(ARGS) >/dev/null 2>&1 || true

test: install-dev ## Every check, and every promise shown on real services that the tests start (20 minutes)
	@$(ALONGSIDE) types style compiled
	@$(PYTEST) -m "not thorough" $(ARGS)

test-fast: install-dev ## Every test that needs no service, without a JVM (2 minutes)
	@$(PYTEST) -m "not service and not thorough" $(ARGS)

test-all: install-dev ## Every test there is, with every kill point; before a piece of work is called done (an hour)
	@$(ALONGSIDE) types style compiled
	@$(PYTEST) $(ARGS)

format: install-dev ## Put the code into its format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install-dev ## Side by side with peers: snapshot, binlog, tick, join, checks, publishing
	@$(BIN)/python -m benchmarks $(ARGS)

soak: install-dev ## 300 kills of the process group, 100 snapshots beside eight writers, 40 stories of time, long transactions, broken checks (hours)
	@TIDEGATE_SOAK=1 $(BIN)/python -m pytest --durations=25 --timeout=0 -m soak $(ARGS)

clean: ## Remove the demo's lake and database; .venv and downloads stay
	@rm -rf .tidegate/demo
