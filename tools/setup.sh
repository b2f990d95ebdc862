#!/usr/bin/env bash
# Makes .venv from requirements.lock and fills the JAR cache. Does nothing, and touches no network, when both are current.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8
UV_SHA256_NOTE="uv itself is pinned by version; every package of the project by sha256 in requirements.lock"
PYTHON="${RSM_PYTHON:-python3.11}"
CACHE="${RSM_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/rsm-spark}"

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }
say() { printf 'setup: %s\n' "$1" >&2; }
