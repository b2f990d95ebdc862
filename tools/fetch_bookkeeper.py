"""Fetches Apache BookKeeper's JARs for the tests that run beside it, and prints the folder that holds them.

`tools/bookkeeper.lock` names each JAR: its sha256, organisation, name, version and, where there is one, classifier.
What bookies and clients load, no more: no RocksDB, no native TLS. `tools/bookkeeper_http.lock` does the same for what a
bookie loads beside that to serve its HTTP API; `tools/distributedlog.lock` for the writer of Apache DistributedLog, and
a bench beside it; `tools/distributedlog_tests.lock` for what its own tests need more than that. Ivy, which pyspark
ships, fetches them from its default repository; the folder gets its name only when every hash fits, so it is whole or
absent.

    .venv/bin/python tools/fetch_bookkeeper.py

RSM_CACHE_DIR says where the folder lies (default ${XDG_CACHE_HOME:-~/.cache}/rsm-spark), as for tools/setup.sh.
"""

# ruff: noqa: INP001, T201 - a script

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from ledger.zookeeper_server.errors import JavaError
from ledger.zookeeper_server.java import find_java

__all__ = [
    "BOOKKEEPER_HTTP_LOCK",
    "DISTRIBUTEDLOG_LOCK",
    "DISTRIBUTEDLOG_TESTS_LOCK",
    "Jar",
    "FetchError",
    "cache_dir",
    "ensure_jars",
    "locked_jars",
]

_LOCK = Path(__file__).with_name("bookkeeper.lock")
BOOKKEEPER_HTTP_LOCK = Path(__file__).with_name("bookkeeper_http.lock")
DISTRIBUTEDLOG_LOCK = Path(__file__).with_name("distributedlog.lock")
DISTRIBUTEDLOG_TESTS_LOCK = Path(__file__).with_name("distributedlog_tests.lock")
_FETCH_S_MAX = 900


class FetchError(Exception):
    """The JARs cannot be had on this machine, for the reason given."""


class Jar(NamedTuple):
    """One line of the lock."""

    sha256: str
    organisation: str
    name: str
    version: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """Name in the folder, as in a Maven repository."""
        return "-".join(part for part in (self.name, self.version, self.classifier) if part) + ".jar"


def cache_dir() -> Path:
    """Return the folder of downloads, the one that tools/setup.sh uses."""
    if chosen := os.environ.get("RSM_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rsm-spark"


def locked_jars(lock: Path = _LOCK) -> list[Jar]:
    """Return what a lock names."""
    return [Jar(*line.split()) for line in lock.read_text(encoding="ascii").splitlines()]


def ensure_jars(lock: Path = _LOCK) -> Path:
    """Return the folder with the JARs; fetch them if they are not there yet.

    Args:
        lock: Names them.

    Raises:
        FetchError: There is no Java, no Ivy or no network, or a download is not what the lock says.

    """
    cache = cache_dir()
    folder = cache / f"{lock.stem}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / lock.name).open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(cache, folder, lock)
    except OSError as error:
        raise FetchError(f"cannot write to {cache}: {error.strerror or error}; set RSM_CACHE_DIR") from error
    return folder


def _fetch(cache: Path, folder: Path, lock: Path) -> None:
    jars = locked_jars(lock)
    print(f"fetching {len(jars)} JARs of {lock.name} into {folder} (some 35 MiB, once)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{lock.stem}-new-") as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(_ivy_file(jars), encoding="utf-8")
        new = work / "jars"
        new.mkdir()
        _run_ivy(work, new)
        for jar in jars:
            path = new / jar.file_name
            if not path.exists():
                raise FetchError(f"the repository has no {jar.file_name}")
            if hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
                raise FetchError(f"{jar.file_name} is not what {lock.name} says: do not use it, tell the maintainers")
        new.rename(folder)


def _run_ivy(work: Path, new: Path) -> None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FetchError("Ivy comes with pyspark, which is not installed: run `make setup`")
    ivy = sorted((Path(spec.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))
    if not ivy:
        raise FetchError("the installed pyspark ships no Ivy")
    try:
        java = find_java()
    except JavaError as error:
        raise FetchError(str(error)) from error
    command = [java, f"-Divy.default.ivy.user.dir={work / 'ivy'}", "-jar", str(ivy[0]), "-ivy", str(work / "ivy.xml")]
    command += ["-confs", "default", "-retrieve", f"{new}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise FetchError(f"the JARs did not arrive within {_FETCH_S_MAX} s: check the network") from None
    if result.returncode != 0:
        complaints = [line.strip() for line in result.stdout.splitlines() if "not found" in line or "Exception" in line]
        why = complaints[0] if complaints else "Ivy says no reason"
        raise FetchError(f"the JARs could not be fetched, is the network there? {why}")


def _ivy_file(jars: list[Jar]) -> str:
    """Return the file that tells Ivy what to fetch: exactly the JARs named, nothing that they depend on."""
    modules: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        artifact = f'<artifact name={quoteattr(jar.name)} type="jar" ext="jar"{classifier}/>'
        modules[jar.organisation, jar.name, jar.version].append(artifact)
    dependencies = "".join(
        f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(version)} "
        f'transitive="false" conf="default->master">{"".join(artifacts)}</dependency>'
        for (organisation, name, version), artifacts in modules.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="rsm" '
        'module="bookkeeper"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def main() -> int:
    """Fetch, and print the folder."""
    try:
        print(ensure_jars())
    except FetchError as error:
        print(f"fetch_bookkeeper: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
