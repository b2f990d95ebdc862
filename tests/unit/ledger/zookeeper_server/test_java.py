"""Which Java is taken for ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.zookeeper_server.errors import JavaError
from ledger.zookeeper_server.java import find_java


def _install_java(folder: Path, version: str, *, release: bool) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')


@pytest.mark.parametrize("release", [True, False], ids=["release-file", "java-version"])
@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_17_and_newer_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, release: bool
) -> None:
    _install_java(tmp_path, version, release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize("release", [True, False], ids=["release-file", "java-version"])
@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_an_older_java_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, release: bool
) -> None:
    _install_java(tmp_path, version, release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"is Java {version}: install Java 17"):
        find_java()


def test_a_missing_java_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="no java on the PATH: install Java 17"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"JAVA_HOME={tmp_path}"):
        find_java()
