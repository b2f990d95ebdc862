.DEFAULT_GOAL := help
SEEDS ?= 1000
# Goes to pytest, such as ARGS='-k fence'; what comes last counts, so ARGS='-n 0' runs one test at a time.
ARGS ?=
# Two at a time, whole files: most tests of real processes wait more than they compute. In the order that
# tests/conftest.py gives them: the longest files have few tests, and xdist would leave those to the end.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
PYTEST := .venv/bin/pytest

.PHONY: help setup demo test test-all check sim bench bench-ledger bench-store bench-broker bench-spark conf lock

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Virtual environment and JARs, by hash; does nothing when they are current
	@tools/setup.sh

demo: setup ## Real data, failures, failover, Spark, Delta, and four answers compared
	@.venv/bin/rsm demo

test: setup ## Everything quick: tests with real processes, types, lint, layers
	@$(PYTEST) $(PARALLEL) -m "not slow and not compat" $(ARGS)

test-all: setup ## What `make test` runs, and what takes minutes or needs Apache BookKeeper's own JARs
	@$(PYTEST) $(PARALLEL) $(ARGS)

check: setup ## Lint, types, layers and tidiness only
	@$(PYTEST) tests/tidy

sim: setup ## Seeded simulations: SEEDS=1000 says how many
	@RSM_SIM_SEEDS=$(SEEDS) $(PYTEST) tests/sim

bench: bench-ledger bench-store bench-broker bench-spark ## All benches; each prints one JSON line a figure

bench-ledger: setup ## Adds and reads of the ledger, beside Apache BookKeeper and NATS JetStream
	@.venv/bin/python -m tests.bench.bench_ledger

bench-store: setup ## Puts, gets, failover and boots of the map, beside etcd
	@.venv/bin/python -m tests.bench.bench_store

bench-broker: setup ## Submits, dispatch, backlogs, failover and snapshots of the task broker
	@.venv/bin/python -m tests.bench.bench_broker

bench-spark: setup ## Streaming from the ledger into Spark and Delta
	@.venv/bin/python -m tests.bench.bench_spark

conf: setup ## Write conf/ and the page of Spark options anew: every option with its default
	@for process in autorecovery bookie broker store worker; do .venv/bin/rsm config example $$process >conf/$$process.toml || exit 1; done
	@.venv/bin/python tools/write_spark_pages.py

lock: setup ## Solve requirements.lock anew, keeping what still fits; UPGRADE=1 takes the newest versions
	@tools/lock.sh $(if $(UPGRADE),--upgrade)
