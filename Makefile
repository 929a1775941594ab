# The two commands for a newcomer are `make run` and `make test`. README.md has the rest.

# The oldest Python that starts: a name on the PATH may be a shim that does not.
PYTHON ?= $(or $(shell for each in 3.11 3.12 3.13 3.14; do python$$each --version >/dev/null 2>&1 && echo python$$each && break; done),python3.11)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
COUNTED := awk '/^ *(Collecting|Obtaining)/ { printf "\r   %d packages", ++n; fflush() } END { print "" }'
ENVIRONMENT := $(VENV)/.made-for-this-project
RUNTIME := $(VENV)/.made-to-run

# Without compiled files each process compiles everything again, half of its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env tools run cluster quick test check site sim soak bench clean

help:
	@echo "make run      serve on 127.0.0.1:9092 (Kafka) and 127.0.0.1:8080 (HTTP), or KAFKA=HOST:PORT HTTP=HOST:PORT DATA=DIR"
	@echo "make cluster  Kafka, workers, gateways and Spark as processes, until Ctrl-C"
	@echo "make quick    the tests of what runs in one process, in under a minute"
	@echo "make test     fetch what the tests need, and run them all"
	@echo "make check    ruff, mypy --strict, import-linter, and the tests"
	@echo "make site     the documentation as a site in .cache/site, with all links checked"
	@echo "make sim      run the four simulators on new seeds, until one fails"
	@echo "make soak     kill processes under load for half an hour (MINUTES=30), and check that nothing is lost"
	@echo "make bench    measure, next to a real Kafka"
	@echo "make clean    remove the environment and everything fetched (never a data folder)"

env: $(ENVIRONMENT)

# Install the files whose hashes are in constraints.txt before its section $(1), and no others; then this folder, editable.
define install
@echo "1 of 3: $$($(PYTHON) --version) environment in $(VENV)"
@$(PYTHON) -m venv $(VENV)
@echo "2 of 3: packages at the versions of constraints.txt; the first time this takes a minute or two"
@sed '/^# run$$/,$$d' constraints.txt | $(PIP) --quiet --require-hashes -r /dev/stdin
@sed '/^# $(1)$$/,$$d' constraints.txt | $(PIP) --require-hashes --no-build-isolation -r /dev/stdin | $(COUNTED)
@echo "3 of 3: topicwright"
@$(PIP) --quiet --no-deps --no-build-isolation -e .
@touch $@
endef

$(ENVIRONMENT): pyproject.toml constraints.txt
	$(call install,end)

# Without the tools of development and Spark, so that a first look takes seconds.
$(RUNTIME): pyproject.toml constraints.txt
	$(call install,aws)

# A `topicwright` to type. Only a link into an environment is replaced, never another program or link of that name.
COMMAND ?= $(HOME)/.local/bin/topicwright

run: $(RUNTIME)
	@if [[ "$$(readlink "$(COMMAND)")" == */.venv/bin/topicwright || ! ( -e "$(COMMAND)" || -L "$(COMMAND)" ) ]]; then \
		mkdir -p "$(dir $(COMMAND))" && ln -sfn "$(abspath $(BIN)/topicwright)" "$(COMMAND)" || true; fi
	@own="$(abspath $(BIN)/topicwright)"; [ "$$(command -v topicwright)" -ef "$$own" ] || { \
		[ ! "$(COMMAND)" -ef "$$own" ] || own="$(COMMAND)"; \
		echo "export PATH=\"$$(dirname "$$own"):\$$PATH\"  # for the command topicwright"; }
	@exec $(BIN)/topicwright serve $(KAFKA:%=--kafka %) $(HTTP:%=--http %) $(DATA:%=--data %)

site:
	@$(PYTHON) -m venv .cache/site-env
	@.cache/site-env/bin/pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.txt
	@NO_MKDOCS_2_WARNING=1 .cache/site-env/bin/mkdocs build --strict --quiet

tools: env
	$(BIN)/python -m tests.support.fetch_tools

cluster: tools
	exec $(BIN)/python -m tests.support.cluster

# Tests that start no program and no server, so nothing is fetched. `make test` has the rest.
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
