"""JARs of ZooKeeper's server: exactly those that `jars.lock` names, each checked by its hash whenever it is used.

They lie in a folder that `rsm zookeeper jars` fills, below the Python environment, or come with an installed pyspark of
the version that ships the same ones. Each line of the lock has hash, organisation, name and version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ledger.zookeeper_server.errors import JarsError

_LOCK = Path(__file__).with_name("jars.lock")
_FETCH_S_MAX = 600
_ANSWER_S_MAX = 60
_JAR_BYTES_MAX = 16 << 20
_SCHEMES = ("https://", "http://")  # Whoever answers in plain text cannot give another JAR either: the hash tells.


class ServerJar(NamedTuple):
    """One line of the lock.

    Attributes:
        sha256: Of the file, in hex.
        organisation: In a Maven repository, with dots.
        name: Of the artifact.
        version: Of the artifact.

    """

    sha256: str
    organisation: str
    name: str
    version: str

    @property
    def file_name(self) -> str:
        """Name of the file, as in a Maven repository."""
        return f"{self.name}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """Path of the file in a Maven repository."""
        return "/".join((*self.organisation.split("."), self.name, self.version, self.file_name))


def locked_jars() -> list[ServerJar]:
    """Return what the lock names."""
    return [ServerJar(*line.split()) for line in _LOCK.read_text(encoding="ascii").splitlines()]


def default_folder() -> Path:
    """Return where `rsm zookeeper jars` puts them: below this Python environment."""
    return Path(sys.prefix) / "share" / "rsm-spark" / "zookeeper"


def find_jars(folder: Path | None = None) -> list[Path]:
    """Return the JARs, each checked by its hash.

    Args:
        folder: Holds them; None = the default folder, else that of an installed pyspark (which is not imported).

    Raises:
        JarsError: They are in none of these, or one is not what the lock says.

    """
    folders = [folder] if folder is not None else [default_folder(), *_folder_of_pyspark()]
    missing = ""
    for place in folders:
        paths = [place / jar.file_name for jar in locked_jars()]
        absent = [path.name for path in paths if not path.is_file()]
        if not absent:
            for path, jar in zip(paths, locked_jars(), strict=True):
                _check(path.read_bytes(), jar, str(path))
            return paths
        missing += f"; {place} lacks {absent[0]}" + (f" and {len(absent) - 1} more" if absent[1:] else "")
    raise JarsError(
        f"no JARs of ZooKeeper{missing}. `rsm zookeeper jars` fetches them by Maven, `--from` copies them from a "
        "folder or a repository; pip install 'rsm-spark[spark]' brings the same ones"
    )


def fetch_jars(target: Path, source: str | None = None, *, say: Callable[[str], object] = lambda _: None) -> Path:
    """Bring the JARs into a folder, each checked by its hash; none of them is there before all are right.

    Args:
        target: Folder; what it holds already is kept if it is right.
        source: Folder with the JARs, folder or http(s) URL of a Maven repository; None = those of an installed pyspark,
            else what the command `mvn` fetches.
        say: Told in a few words what is done.

    Returns:
        The folder.

    Raises:
        JarsError: They cannot be had, or one is not what the lock says.

    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".new-") as scratch:
            wanted = [jar for jar in locked_jars() if not _is_right(target / jar.file_name, jar)]
            if wanted:
                _bring(wanted, Path(scratch), source, say)
            for jar in wanted:
                _check((Path(scratch) / jar.file_name).read_bytes(), jar, f"{jar.file_name} of {source or 'Maven'}")
            for jar in wanted:
                (Path(scratch) / jar.file_name).replace(target / jar.file_name)
    except OSError as error:
        raise JarsError(f"cannot bring JARs into {target}: {error.strerror or error}: choose another --to") from error
    return target


def _bring(jars: Sequence[ServerJar], scratch: Path, source: str | None, say: Callable[[str], object]) -> None:
    places = _folder_of_pyspark()
    if source is None and places and all(_is_right(places[0] / jar.file_name, jar) for jar in jars):
        source = str(places[0])
    if source is None:
        say(f"{len(jars)} JARs by mvn")
        _run_maven(jars, scratch)
    elif source.startswith(_SCHEMES):
        for number, jar in enumerate(jars, 1):
            say(f"{number} of {len(jars)}: {jar.file_name}")
            (scratch / jar.file_name).write_bytes(_download(f"{source.rstrip('/')}/{jar.repository_path}"))
    else:
        say(f"{len(jars)} JARs from {source}")
        for jar in jars:
            found = [
                path for path in (Path(source) / jar.file_name, Path(source) / jar.repository_path) if path.exists()
            ]
            if not found:
                raise JarsError(f"--from {source}: it holds neither {jar.file_name} nor {jar.repository_path}")
            shutil.copyfile(found[0], scratch / jar.file_name)


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S_MAX) as answer:  # noqa: S310 - http or https: `_SCHEMES`
            content: bytes = answer.read(_JAR_BYTES_MAX + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise JarsError(f"cannot fetch {url}: {error}") from error
    return content


def _run_maven(jars: Sequence[ServerJar], scratch: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError(
            "no mvn on the PATH to fetch ZooKeeper's JARs with: install Maven, or give --from: the URL of a Maven "
            "repository, or a folder with the JARs"
        )
    project = scratch / "pom.xml"
    project.write_text(_maven_project(jars), encoding="utf-8")
    command = [maven, "--batch-mode", "--quiet", "--file", str(project), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={scratch}", "-DexcludeTransitive=true"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise JarsError(f"mvn did not fetch the JARs within {_FETCH_S_MAX} s: check the network") from None
    absent = [jar.file_name for jar in jars if not (scratch / jar.file_name).exists()]
    if result.returncode or absent:
        complaints = [line for line in result.stdout.splitlines() if "ERROR" in line]
        why = complaints[0] if complaints else f"it gave no {absent[0]}" if absent else "it says no reason"
        raise JarsError(f"mvn did not fetch the JARs: {why}")


def _maven_project(jars: Sequence[ServerJar]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{jar.organisation}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version></dependency>"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>rsm</groupId>'
        "<artifactId>zookeeper-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _folder_of_pyspark() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    return [Path(place) / "jars" for place in (spec.submodule_search_locations or ())[:1]] if spec else []


def _is_right(path: Path, jar: ServerJar) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _check(content: bytes, jar: ServerJar, where: str) -> None:
    if hashlib.sha256(content).hexdigest() != jar.sha256:
        raise JarsError(f"{where} is not what {_LOCK.name} says (sha256 {jar.sha256[:16]}…): do not use it")
