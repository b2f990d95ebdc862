#!/usr/bin/env bash
# Solves the dependencies of pyproject.toml into requirements.lock: all extras, all platforms, by hash, with no
# address of a package index in it (docs/decisions/0001-locked-packages.md). Arguments go to uv, such as --upgrade.
# Of that, what servers in a container need is in containers/servers.lock, and what builds the wheel in build.lock there.
set -euo pipefail
cd "$(dirname "$0")/.."

CACHE="${RSM_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rsm-spark}"
UV="$CACHE/uv-$(sha256sum tools/uv.lock | cut -c 1-12)/bin/uv"

solve() {
  "$UV" pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
    --no-emit-find-links --quiet "$@"
}

solve pyproject.toml --all-extras --group dev --group docs --output-file requirements.lock "$@"
solve pyproject.toml --extra server --extra broker --extra gateway --extra sql --extra s3 --extra otel \
  --constraint requirements.lock --no-annotate --output-file containers/servers.lock
solve - --constraint requirements.lock --no-annotate --output-file containers/build.lock <<<hatchling
# What runs dbt beside Spark's Thrift server in tests/spark/test_dbt.py, in an environment of its own.
solve - --no-annotate --output-file tools/dbt.lock <<<$'dbt-core<1.12\ndbt-spark[PyHive]==1.11.0'
# The older Sparks that tests/spark/test_older_spark.py reads with, each with the packages of this project beside it.
for version in 4.0 4.1; do
  solve - --no-annotate --output-file "tools/spark-$version.lock" <<<"pyspark==$version.*"
done
