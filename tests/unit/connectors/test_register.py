"""What is registered, and what shipped files need so that streams find them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connectors import register as module


class FakeSession:
    """Remembers what is registered; nothing else of a session is asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @property
    def dataSource(self) -> Any:
        return self

    def register(self, source: Any) -> None:
        self.names.append(source.name())


def test_every_source_that_is_found_by_name_is_registered() -> None:
    root = Path(module.__file__).parents[1]
    session = FakeSession()
    module.register(session)  # type: ignore[arg-type]
    assert sorted(session.names) == sorted(path.stem.removeprefix("pyspark_") for path in root.glob("pyspark_*.py"))


def test_shipped_files_are_seen_where_streams_look_for_them_now_and_later(tmp_path: Path) -> None:
    (tmp_path / "first.zip").touch()
    module._show_files_to_streams(tmp_path)
    module._show_files_to_streams(tmp_path)
    (tmp_path / "second.zip").touch()
    assert (tmp_path / "streaming_job" / "first.zip").exists()
    assert (tmp_path / "streaming_job" / "second.zip").exists()


class FakeContext:
    """Takes packages as Spark does."""

    def __init__(self, folder: Path) -> None:
        self._temp_dir = str(folder)
        self._python_includes: list[str] = []

    def addPyFile(self, path: str) -> None:
        assert Path(path).read_bytes() == b"a wheel"
        self._python_includes.append(Path(path).name)


def test_a_wheel_is_shipped_once_under_a_name_that_spark_takes_for_a_package(tmp_path: Path) -> None:
    wheel = tmp_path / "rsm_spark-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    folder = tmp_path / "temporary"
    folder.mkdir()
    context: Any = FakeContext(folder)
    module._ship(context, wheel)
    module._ship(context, wheel)
    assert context._python_includes == ["rsm_spark-1.0-py3-none-any.zip"]
