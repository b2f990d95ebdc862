#!/usr/bin/env bash
# Makes .venv from requirements.lock and fills the cache of Delta's JARs from jars.lock, by hash, nothing twice.
# When both are current it does nothing and touches no network. Interrupted or run twice at once, it goes on or waits.
#
#   RSM_PYTHON      the Python to use (default python3.11)
#   RSM_CACHE_DIR   where JARs and uv go (default ${XDG_CACHE_HOME:-~/.cache}/rsm-spark)
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${RSM_PYTHON:-python3.11}"
CACHE="${RSM_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rsm-spark}"
JARS="$CACHE/jars"
STAMP=.venv/.rsm-setup
UNFINISHED=.venv/.rsm-setup-unfinished
FREE_MIB_MIN=3000
# The Ivy coordinates (organisation, version) of the JARs in jars.lock, by the beginning of their names.
DELTA_ORG=io.delta
CATALOG_ORG=io.unitycatalog

say() { printf 'setup: %s\n' "$1" >&2; }
fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

# What the last set-up was made from; the place too, because .venv does not survive being moved.
wanted() {
  printf '%s %s\n' "$PWD" "$JARS"
  sha256sum requirements.lock pyproject.toml jars.lock tools/uv.lock tools/setup.sh
}

is_current() {
  [[ -f $STAMP && -x .venv/bin/rsm && "$(<"$STAMP")" == "$(wanted)" ]] || return 1
  local sum jar
  while read -r sum jar; do [[ -f $JARS/$jar ]] || return 1; done < jars.lock
}

check_python() {
  local path version
  path=$(command -v "$PYTHON") || fail "no $PYTHON: install Python 3.11 with its venv module, or point RSM_PYTHON at one"
  version=$("$path" -c 'import ensurepip, sys, venv; print("%d%02d" % sys.version_info[:2])' 2>/dev/null) \
    || fail "$path lacks venv or ensurepip: install them (on Debian: apt-get install python3.11-venv)"
  (( version >= 311 )) || fail "$path is older than Python 3.11: install 3.11, or point RSM_PYTHON at one"
}

check_java() {
  local java version major
  java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
  command -v "$java" >/dev/null || fail "no $java: install Java 17 (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
  major=${version#1.}
  major=${major%%[!0-9]*}
  (( ${major:-0} >= 17 )) || fail "$java is Java ${version:-of unknown version}: install Java 17 or newer and point JAVA_HOME at it"
  JAVA=$java
}

check_space() {
  local folder=$1 free
  free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
  (( free >= FREE_MIB_MIN )) || fail "only $free MiB are free in $folder, the set-up needs $FREE_MIB_MIN: free some, or move the cache by RSM_CACHE_DIR"
}

# run WHAT COMMAND...: silent if all goes well; else one line that says why, with the full output in the cache.
run() {
  local what=$1 log="$CACHE/setup.log" why
  shift
  if "$@" >"$log" 2>&1 </dev/null; then return 0; fi
  if grep -qi -e 'no space left' "$log"; then why="the disk is full: free some space"
  elif grep -qi -e 'dns error' -e 'failed to fetch' -e 'name resolution' -e 'network is unreachable' -e 'connection refused' \
    -e 'timed out' -e 'NewConnectionError' -e 'UnknownHostException' -e 'connect error' -e 'Host .* not found' "$log"; then
    why="the package registry was not reached: check the network, then start this again (what is there already is kept)"
  elif grep -qi -e 'hash mismatch' -e 'do not match the hashes' "$log"; then why="a download is not what its lock says: do not use it, tell the maintainers"
  else why=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c 1-200); fi
  fail "$what failed: $why (details: $log)"
}

# uv in a virtual environment of its own, one for each version, under a temporary name until it is whole.
ensure_uv() {
  local id home
  id=$(sha256sum tools/uv.lock | cut -c 1-12)
  home="$CACHE/uv-$id"
  UV="$home/bin/uv"
  [[ -x $UV ]] && return 0
  say "installing uv"
  local new="$home.new.$$"
  rm -rf "$CACHE"/uv-*.new.*
  run "making $new" "$PYTHON" -m venv "$new"
  run "installing uv" "$new/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/uv.lock
  rm -rf "$home"
  mv "$new" "$home"
}

make_venv() {
  # An installation that was cut short may have left half a package: begin anew, the downloads are in uv's cache.
  if [[ -e $UNFINISHED || ! -x .venv/bin/python ]] || ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making .venv"
    run "making .venv" "$UV" venv --quiet --no-project --clear --python "$PYTHON" .venv
  fi
  : >"$UNFINISHED"
  say "installing $(grep -c '^[a-z]' requirements.lock) locked packages into .venv (several minutes the first time)"
  # First from uv's own cache alone: so a change of pyproject.toml needs no network either.
  local sync=(env "VIRTUAL_ENV=$PWD/.venv" "$UV" pip sync --quiet --require-hashes requirements.lock)
  "${sync[@]}" --offline >/dev/null 2>&1 </dev/null || run "installing packages" "${sync[@]}"
  say "installing rsm-spark itself, editable"
  run "installing rsm-spark" env VIRTUAL_ENV="$PWD/.venv" "$UV" pip install --quiet --no-deps --no-build-isolation --offline --editable .
  rm "$UNFINISHED"
}

# fetch NAME VERSION: one JAR by the Ivy that pyspark ships; the repository is Ivy's own default.
fetch() {
  local name=$1 version=$2 org=$DELTA_ORG
  [[ $name == unitycatalog-* ]] && org=$CATALOG_ORG
  local ivy=(.venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
  run "fetching $name $version" "$JAVA" "-Divy.default.ivy.user.dir=$CACHE/ivy" -jar "${ivy[0]}" -dependency "$org" "$name" "$version" \
    -notransitive -confs master -retrieve "$JARS.new/[artifact]-[revision].[ext]"
}

fetch_jars() {
  local sum jar stem
  mkdir -p "$JARS" "$JARS.new"
  while read -r sum jar; do
    if [[ -f $JARS/$jar ]] && sha256sum --status -c - <<<"$sum  $JARS/$jar"; then continue; fi
    say "fetching $jar"
    stem=${jar%.jar}
    fetch "${stem%-*}" "${stem##*-}"
    [[ -f $JARS.new/$jar ]] || fail "fetching $jar failed: the repository does not have it (details: $CACHE/setup.log)"
    sha256sum --status -c - <<<"$sum  $JARS.new/$jar" || fail "$JARS.new/$jar is not what jars.lock says: do not use it, tell the maintainers"
    mv "$JARS.new/$jar" "$JARS/$jar"
  done < jars.lock
  rm -rf "$JARS.new"
}

is_current && exit 0
mkdir -p "$CACHE" 2>/dev/null || fail "cannot write to $CACHE: make it writable, or set RSM_CACHE_DIR"
exec 9>"$CACHE/setup.lock" || fail "cannot write to $CACHE: make it writable, or set RSM_CACHE_DIR"
flock -n 9 || { say "waiting for another set-up"; flock 9; }
is_current && exit 0
check_python
check_java
[[ -x .venv/bin/python ]] || { check_space "$CACHE"; check_space "$PWD"; }
rm -f "$STAMP"
ensure_uv
make_venv
fetch_jars
wanted >"$STAMP.new"
mv "$STAMP.new" "$STAMP"
say "done: .venv/bin/rsm --help"
