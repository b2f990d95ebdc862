"""JARs of ZooKeeper: found, copied, fetched, and never another one than the lock names."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.zookeeper_server import jars
from ledger.zookeeper_server.errors import JarsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all JARs."""
    made = tmp_path / "jars"
    made.mkdir()
    for path in jars.find_jars():
        shutil.copyfile(path, made / path.name)
    return made


@pytest.fixture
def repository(folder: Path, tmp_path: Path) -> Iterator[str]:
    """URL of a Maven repository that has them."""
    root = tmp_path / "repository"
    for jar in jars.locked_jars():
        place = root / jar.repository_path
        place.parent.mkdir(parents=True)
        shutil.copyfile(folder / jar.file_name, place)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def _no_pyspark(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(jars, "default_folder", lambda: tmp_path / "default")


def test_the_lock_names_the_jars_that_pyspark_ships() -> None:
    assert {path.name for path in jars.find_jars()} == {jar.file_name for jar in jars.locked_jars()}


@pytest.mark.usefixtures("_no_pyspark")
def test_without_any_the_error_says_what_brings_them() -> None:
    with pytest.raises(JarsError, match=r"lacks .* and \d+ more.*`rsm zookeeper jars`.*rsm-spark\[spark\]"):
        jars.find_jars()


def test_a_jar_that_was_changed_is_not_used(folder: Path) -> None:
    with (folder / jars.locked_jars()[3].file_name).open("ab") as file:
        file.write(b"x")
    with pytest.raises(JarsError, match="is not what jars.lock says"):
        jars.find_jars(folder)


@pytest.mark.usefixtures("_no_pyspark")
def test_they_are_copied_from_a_folder_and_found(folder: Path, tmp_path: Path) -> None:
    jars.fetch_jars(tmp_path / "default", str(folder))
    assert all(path.parent == tmp_path / "default" for path in jars.find_jars())


@pytest.mark.usefixtures("_no_pyspark")
def test_they_are_fetched_from_a_repository_where_what_is_right_is_kept(repository: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    said: list[str] = []
    jars.fetch_jars(target, repository, say=said.append)
    assert len(said) == len(jars.locked_jars()) == len(jars.find_jars(target))
    damaged = target / jars.locked_jars()[0].file_name
    damaged.write_bytes(b"")
    said.clear()
    jars.fetch_jars(target, f"{repository}/", say=said.append)
    assert len(said) == 1
    assert len(jars.find_jars(target)) == len(jars.locked_jars())


def test_a_false_jar_of_a_repository_is_refused_and_none_is_there(folder: Path, tmp_path: Path) -> None:
    (folder / jars.locked_jars()[-1].file_name).write_bytes(b"something else")
    with pytest.raises(JarsError, match="is not what jars.lock says"):
        jars.fetch_jars(tmp_path / "target", str(folder))
    assert list((tmp_path / "target").iterdir()) == []


def test_a_repository_that_does_not_answer_or_lacks_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(JarsError, match=r"cannot fetch http://127.0.0.1:1/"):
        jars.fetch_jars(tmp_path / "target", "http://127.0.0.1:1/")
    with pytest.raises(JarsError, match="it holds neither"):
        jars.fetch_jars(tmp_path / "target", str(tmp_path))


@pytest.mark.usefixtures("_no_pyspark")
def test_without_maven_the_error_names_the_other_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsError, match="install Maven, or give --from"):
        jars.fetch_jars(tmp_path / "target")


@pytest.mark.usefixtures("_no_pyspark")
def test_maven_is_given_a_project_with_exactly_these(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        f'#!/bin/sh\ncp $4 {tmp_path}/pom.xml\nfor a in "$@"; do\n'
        f"case $a in -DoutputDirectory=*) cp {folder}/* ${{a#*=}};; esac\ndone\n"
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    jars.fetch_jars(tmp_path / "target")
    assert len(jars.find_jars(tmp_path / "target")) == len(jars.locked_jars())
    assert (tmp_path / "pom.xml").read_text().count("<artifactId>") == len(jars.locked_jars()) + 1
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to the repository'\nexit 1\n")
    with pytest.raises(JarsError, match="no route to the repository"):
        jars.fetch_jars(tmp_path / "other")
