.DEFAULT_GOAL := help
SEEDS ?= 1000
# Of the large table of bench-spark: rows, and keys of a merge. docs/decisions/0071 has 100000000 and 100000.
MERGE_ROWS ?= 2000000
MERGE_KEYS ?= 20000
# Goes to pytest, such as ARGS='-k fence'; what comes last counts, so ARGS='-n 0' runs one test at a time.
ARGS ?=
# Two at a time, whole files: most tests of real processes wait more than they compute. Which tests are in a set, and in
# which order: tests/sets.py.
# The quick set runs four: the demonstration and what runs on the cluster wait longest, all else computes.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
PYTEST := .venv/bin/pytest

# Where ARGS chooses tests, that a set has none of them (pytest's code 5) is no failure of that set.
IF_ANY := $(if $(ARGS),[ $$? -eq 5 ] ||)

.PHONY: help setup demo test test-real test-slow test-all check sim bench bench-ledger bench-store bench-broker bench-spark bench-sql generate blocking conf dashboards reference lock sbom docs notebooks coverage deb image pictures recording

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Virtual environment and JARs, by hash; does nothing when they are current
	@tools/setup.sh

demo: setup ## Real data, failures, failover, Spark, Delta, and five answers compared
	@.venv/bin/rsm demo

test: setup ## Lint, types, unit tests, model, short simulations, one test of each real thing
	@code=0; \
	$(PYTEST) --set simulations -m "not slow" $(ARGS) || $(IF_ANY) code=$$?; \
	$(PYTEST) $(PARALLEL) -n 4 --set quick -m "not slow" $(ARGS) || code=$$?; \
	exit $$code

test-real: setup ## Real processes, Spark, simulations, the documents' commands: SHARD=1/4 runs a quarter
	@$(PYTEST) $(PARALLEL) --set real $(if $(SHARD),--shard $(SHARD)) -m "not slow" $(ARGS)

test-slow: setup ## Real processes and Spark, what takes minutes each: SHARD=1/4 runs a quarter
	@$(PYTEST) $(PARALLEL) --set real $(if $(SHARD),--shard $(SHARD)) -m "slow and not compat" $(ARGS)

test-all: setup ## Both, and what takes minutes or needs Apache BookKeeper's own JARs; ten times the examples
	@code=0; \
	$(PYTEST) --set simulations --effort 10 $(ARGS) || $(IF_ANY) code=$$?; \
	$(PYTEST) $(PARALLEL) --set rest --effort 10 $(ARGS) || code=$$?; \
	exit $$code

check: setup ## Lint, types, layers and tidiness only
	@$(PYTEST) $(PARALLEL) tests/tidy

sim: setup ## Seeded simulations: SEEDS=1000 says how many
	@RSM_SIM_SEEDS=$(SEEDS) $(PYTEST) tests/sim

bench: bench-ledger bench-store bench-broker bench-spark bench-sql ## All benches; each prints one JSON line a figure

bench-ledger: setup ## Adds and reads of the ledger, beside Apache BookKeeper and NATS JetStream
	@.venv/bin/python -m tests.bench.bench_ledger

bench-store: setup ## Puts, gets, failover and boots of the map, beside etcd
	@.venv/bin/python -m tests.bench.bench_store

bench-broker: setup ## Submits, dispatch, backlogs, failover and snapshots of the task broker
	@.venv/bin/python -m tests.bench.bench_broker

bench-spark: setup ## Spark reads and writes logs, Delta followers, proofs, merges of driver and cluster: MERGE_ROWS=2000000
	@.venv/bin/python -m tests.bench.bench_spark
	@.venv/bin/python -m tests.bench.bench_sinks
	@RSM_BENCH_ROWS=$(MERGE_ROWS) RSM_BENCH_KEYS=$(MERGE_KEYS) .venv/bin/python -P -m tests.bench.bench_large_merges

bench-sql: setup ## SQL over PostgreSQL's protocol, beside PostgreSQL, rqlite and HerdDB
	@.venv/bin/python -m tests.bench.bench_sql

blocking: setup ## Write the blocking clients anew from the asynchronous ones
	@.venv/bin/python tools/generate_blocking.py

generate: conf blocking dashboards pictures reference ## Write all anew that is generated from the code

conf: setup ## Write conf/ and the pages of options anew: every option with its default
	@.venv/bin/python tools/write_process_pages.py
	@.venv/bin/python tools/write_spark_pages.py

dashboards: setup ## Write the dashboards of Grafana anew from tools/write_dashboards.py
	@.venv/bin/python tools/write_dashboards.py

reference: setup ## Write the reference of commands, HTTP and metrics anew: docs/reference
	@.venv/bin/python tools/write_reference_pages.py

pictures: setup ## Draw the pictures of docs/explained anew
	@.venv/bin/python tools/draw_pictures.py

recording: setup ## Run the demonstration and draw the recording of it that the README shows
	@.venv/bin/python tools/record_demo.py

lock: setup ## Solve requirements.lock anew, keeping what still fits; UPGRADE=1 takes the newest versions
	@tools/lock.sh $(if $(UPGRADE),--upgrade)

docs: setup ## The documents as a site with a reference of the public packages: dist/docs/index.html
	@rm -rf dist/docs dist/doctrees
	@.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going -c tools/site -d dist/doctrees . dist/docs

notebooks: setup ## Run the notebooks of the tutorials anew, each on a cluster of its own, and keep what they show
	@.venv/bin/python tools/run_notebooks.py

coverage: setup ## What the unit tests run through, in percent of the lines: one line a package
	@rm -rf dist/coverage && mkdir -p dist/coverage
	@.venv/bin/coverage run --parallel-mode --data-file=dist/coverage/data -m pytest -q $(PARALLEL) -m "not slow and not compat" tests/unit $(ARGS)
	@.venv/bin/python tools/show_coverage.py dist/coverage/data

sbom: setup ## What the locks name, as a bill of materials: dist/sbom.cdx.json (CycloneDX)
	@.venv/bin/python tools/write_sbom.py

deb: setup ## The package for Debian 12, with the unit of a machine: dist/rsm-spark_VERSION_ARCHITECTURE.deb
	@tools/deb.sh

image: ## The image of all servers, by docker or buildah: tools/image.sh says by which variables
	@tools/image.sh $(ARGS)
