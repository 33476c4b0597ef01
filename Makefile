# Tidegate, from a fresh clone. `make` alone lists what there is.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
TIDEGATE := $(BIN)/tidegate
# How many files of tests run at a time, each with a Spark session and servers of its own; 0: one after another.
WORKERS ?= 3
# Options of the commands: make demo ARGS="--rows 100000", make test ARGS="-k gate"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo ui test check format bench soak clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Make .venv and install Tidegate (1 to 5 minutes, once)
	@PYTHON="$(PYTHON)" scripts/install.sh

install-dev:
	@PYTHON="$(PYTHON)" scripts/install.sh dev

demo: install ## Join 500,000 clicks to a MariaDB table that is still loading, and prove the result
	@$(TIDEGATE) demo $(ARGS)

ui: install ## Open Dagster on the demo's lake
	@$(TIDEGATE) ui --demo $(ARGS)

check: install-dev ## Lint, format, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

test: check ## Every check and every test, on a real MariaDB that the tests start
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 $(ARGS)

format: install-dev ## Put the code into its format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install-dev ## Side by side with peers: snapshot, binlog, tick, join, checks, publishing
	@$(BIN)/python -m benchmarks $(ARGS)

soak: install-dev ## 300 kills of the process group, 100 snapshots beside eight writers, 40 stories of time, long transactions, broken checks (hours)
	@TIDEGATE_SOAK=1 $(BIN)/python -m pytest --durations=25 --timeout=0 \
		tests/pipelines/runtime/test_kills.py tests/pipelines/runtime/landing/test_kills_from_mysql.py \
		tests/pipelines/runtime/test_random_times.py \
		tests/pipelines/sources/mysql_cdc/snapshot/test_exact_cut.py \
		tests/pipelines/sources/mysql_cdc/binlog/test_long_transaction.py tests/assets/test_broken.py $(ARGS)

clean: ## Remove the demo's lake and database; .venv and downloads stay
	@rm -rf .tidegate/demo
