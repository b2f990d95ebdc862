#!/usr/bin/env bash
# Builds what charts and compose files are checked by, and prints the folder of the two commands: `helm`, and
# `compose-check`, the loader that Docker Compose has inside. Go's own sums tell that modules are what they were. Tests that
# need them skip where they are not; this takes some minutes of two processors, and nothing the second time.
set -euo pipefail

HELM=helm.sh/helm/v3/cmd/helm@v3.22.0
COMPOSE=github.com/compose-spec/compose-go/v2/cmd@v2.16.2
CACHE="${RSM_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rsm-spark}"
folder="$CACHE/container-tools-$(sha256sum "$0" | cut -c 1-12)"

if [[ ! -x $folder/helm || ! -x $folder/compose-check ]]; then
  command -v go >/dev/null || { echo "container_tools: no go: install Go 1.26 or newer" >&2; exit 1; }
  new="$folder.new.$$"
  trap 'rm -rf "$new"' EXIT
  GOBIN="$new" go install "$HELM"
  GOBIN="$new" go install "$COMPOSE"
  mv "$new/cmd" "$new/compose-check"
  rm -rf "$folder"
  mv "$new" "$folder"
fi
echo "$folder"
