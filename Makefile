# The two commands for a newcomer are `make run` and `make test`. README.md tells the rest.

# The oldest that is there: a name on the PATH may be a stand-in that does not start.
PYTHON ?= $(or $(shell for each in 3.11 3.12 3.13; do python$$each --version >/dev/null 2>&1 && echo python$$each && break; done),python3.11)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ENVIRONMENT := $(VENV)/.made-for-this-project
RUNTIME := $(VENV)/.made-to-run

# Where nothing compiled is kept, each process compiles all of this anew: half of its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env tools run cluster quick test check sim soak bench clean

help:
	@echo "make run      serve on 127.0.0.1:9092 (Kafka) and 127.0.0.1:8080 (HTTP)"
	@echo "make cluster  Kafka, workers, gateways and Spark as processes, until Ctrl-C"
	@echo "make quick    the tests of what runs in one process, in under a minute"
	@echo "make test     fetch what the tests need, and run them all"
	@echo "make check    ruff, mypy --strict, import-linter, and the tests"
	@echo "make sim      simulate lives of fresh seeds, until one fails"
	@echo "make soak     live half an hour of kills under load (MINUTES=30), and judge it"
	@echo "make bench    measure, beside a real Kafka"
	@echo "make clean    remove the environment and everything fetched (never a data folder)"

env: $(ENVIRONMENT)

# The files whose hashes are in constraints.txt before its section $(1), and no others; then this folder, by a link.
define install
$(PYTHON) -m venv $(VENV)
sed '/^# run$$/,$$d' constraints.txt | $(PIP) --require-hashes -r /dev/stdin
sed '/^# $(1)$$/,$$d' constraints.txt | $(PIP) --require-hashes --no-build-isolation -r /dev/stdin
$(PIP) --no-deps --no-build-isolation -e .
touch $@
endef

$(ENVIRONMENT): pyproject.toml constraints.txt
	$(call install,end)

# Without the tools of development and Spark, so that a first look takes seconds.
$(RUNTIME): pyproject.toml constraints.txt
	$(call install,replay)

# A `topicwright` that one can type. Whatever else is called so is left alone.
COMMAND ?= $(HOME)/.local/bin/topicwright

run: $(RUNTIME)
	@if [ -L "$(COMMAND)" ] || [ ! -e "$(COMMAND)" ]; then \
		mkdir -p "$(dir $(COMMAND))" && ln -sfn "$(abspath $(BIN)/topicwright)" "$(COMMAND)" || true; fi
	exec $(BIN)/topicwright serve --hints

tools: env
	$(BIN)/python -m tests.support.fetch_tools

cluster: tools
	exec $(BIN)/python -m tests.support.cluster

# What starts no program and no server: nothing is fetched for it. `make test` has the rest.
QUICK := access apis engine events http kafka machine policy projections settings
SLOW := events/logs/test_rocksdb_failures.py events/logs/test_killed.py kafka/codec/test_lenient.py \
	kafka/codec/test_oracles.py machine/partitions/test_changes.py machine/test_walks.py policy/test_serving.py

quick: env
	$(BIN)/python -m pytest -q $(QUICK:%=tests/%) $(SLOW:%=--ignore=tests/%)

test: tools
	$(BIN)/python -m tests.support.side_by_side

check: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.support.side_by_side

# Simulated lives of fresh seeds, until one fails.
sim: env
	@for round in $$(seq 1000000); do first=$$(( $$(date +%s) % 100000000 * 10 )); \
		$(BIN)/python -m tests.simulation process $$first 20 && \
		$(BIN)/python -m tests.simulation stream $$first 20 && \
		$(BIN)/python -m tests.simulation brokers $$first 20 && \
		$(BIN)/python -m tests.simulation quorum $$first 200 || exit 1; done

MINUTES ?= 30

soak: tools
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

bench: tools
	$(BIN)/python -m benchmarks --keep .cache/bench.json

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist
