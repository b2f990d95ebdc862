#!/usr/bin/env bash
# Builds containers/Dockerfile as the image rsm-spark, by docker, or by buildah where no daemon answers. Arguments go to
# either of them, such as --build-arg BASE=registry.example.org/python:3.11-slim-bookworm.
#
#   RSM_IMAGE=NAME        name of the image (default rsm-spark)
#   RSM_BASE=debian       base image from Debian's packages by mmdebstrap, where no registry of images is reached: needs
#                         root and buildah, and takes them from where apt of this machine does
#   RSM_JARS=FOLDER       ZooKeeper's JARs from a folder, such as pyspark's, and not by Maven
#   RSM_CA=FILE           authorities (PEM) that pip trusts while it builds, behind a proxy of one's own
set -euo pipefail
cd "$(dirname "$0")/.."

IMAGE="${RSM_IMAGE:-rsm-spark}"
DEBIAN_BASE=localhost/rsm-debian-python:bookworm

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { printf 'image: %s\n' "$1" >&2; exit 1; }

has_daemon() { command -v docker >/dev/null && docker version >/dev/null 2>&1; }

make_debian_base() {
  command -v mmdebstrap >/dev/null || fail "no mmdebstrap: apt-get install mmdebstrap"
  buildah inspect --type image "$DEBIAN_BASE" >/dev/null 2>&1 && return
  local container
  cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources >"$scratch/debian.sources" 2>/dev/null || true
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$scratch/base.tar" \
    "$scratch/debian.sources"
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$scratch/base.tar" / >/dev/null
  buildah commit --quiet --rm "$container" "$DEBIAN_BASE" >/dev/null
}

arguments=(--file containers/Dockerfile --tag "$IMAGE" "$@")
[[ ${RSM_BASE:-} == debian ]] && arguments+=(--build-arg "BASE=$DEBIAN_BASE")
if has_daemon; then
  [[ -z ${RSM_BASE:-}${RSM_JARS:-}${RSM_CA:-} ]] || fail "RSM_BASE, RSM_JARS and RSM_CA are for buildah alone"
  docker build "${arguments[@]}" .
  exit
fi
command -v buildah >/dev/null || fail "neither a docker daemon nor buildah: apt-get install buildah"
[[ -z ${RSM_BASE:-} || $RSM_BASE == debian ]] || fail "RSM_BASE=$RSM_BASE: it may be debian; for another base give --build-arg BASE=…"
[[ ${RSM_BASE:-} == debian ]] && make_debian_base
[[ -n ${RSM_JARS:-} ]] && arguments+=(--volume "$(realpath "$RSM_JARS"):/jars:ro" --build-arg JARS_FROM=/jars)
if [[ -n ${RSM_CA:-} ]]; then
  printf '[global]\ncert = /ca.pem\n' >"$scratch/pip.conf"
  arguments+=(--volume "$(realpath "$RSM_CA"):/ca.pem:ro" --volume "$scratch/pip.conf:/etc/pip.conf:ro")
fi
# `docker` as format: OCI's has no HEALTHCHECK.
buildah build --isolation chroot --format docker --ignorefile containers/Dockerfile.dockerignore --layers "${arguments[@]}" .
