from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import session
from connectors.errors import SessionSetupError
from connectors.session import cached_jars, jar_folder, session_settings


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSM_CACHE_DIR", str(tmp_path))
    (tmp_path / "jars").mkdir()
    for name in ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar", "other-1.jar"):
        (tmp_path / "jars" / name).touch()
    return tmp_path


def test_jars_come_from_the_cache_of_the_setup(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [jar.name for jar in cached_jars()][0] == "delta-spark_4.2_2.13-4.4.0.jar"
    assert session_settings(delta=True, master="local[2]", checkpoint=None)["spark.jars"].count(",") == 2
    monkeypatch.delenv("RSM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "x"))
    assert jar_folder() == cache / "x" / "rsm-spark" / "jars"


def test_a_cache_without_delta_is_an_error_that_says_what_to_do(cache: Path) -> None:
    (cache / "jars" / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(SessionSetupError, match=r"missing: delta-storage-\*\.jar.*make setup"):
        session_settings(delta=True, master="local[2]", checkpoint=None)
    assert "spark.jars" not in session_settings(delta=False, master="local[2]", checkpoint=None)


@pytest.mark.parametrize(
    ("master", "checkpoint", "is_set"),
    [
        ("local[2]", "/data/checkpoint", True),
        ("local", "file:///data/checkpoint", True),
        ("local[2]", "s3://bucket/checkpoint", False),
        ("spark://host:7077", "/data/checkpoint", False),
        ("local[2]", None, False),
    ],
)
def test_the_checkpoint_manager_that_is_not_atomic_is_for_local_folders_only(
    master: str, checkpoint: str | None, is_set: bool
) -> None:
    settings = session_settings(delta=False, master=master, checkpoint=checkpoint)
    assert ("spark.sql.streaming.checkpointFileManagerClass" in settings) is is_set


def test_a_cluster_keeps_its_own_shuffle_and_address() -> None:
    settings = session_settings(delta=False, master="yarn", checkpoint=None)
    assert not [key for key in settings if key.startswith(("spark.driver", "spark.sql.shuffle"))]


def test_filters_can_be_pushed_down_in_every_session() -> None:
    settings = session_settings(delta=False, master="yarn", checkpoint=None)
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"


def test_workers_are_forked_from_our_process_on_this_machine_alone() -> None:
    for master, is_set in (("local[2]", True), ("spark://host:7077", False), ("yarn", False)):
        settings = session_settings(delta=False, master=master, checkpoint=None)
        assert ("spark.python.daemon.module" in settings) is is_set


def test_tasks_have_this_package_where_their_python_is_ours_and_nothing_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert session._tasks_have_this_package({}, tmp_path)
    assert session._tasks_have_this_package({"spark.pyspark.python": sys.executable}, tmp_path)
    assert not session._tasks_have_this_package({"spark.pyspark.python": "/no/such/python"}, tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    assert not session._tasks_have_this_package({}, tmp_path)
    monkeypatch.delenv("PYSPARK_PYTHON")
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").touch()
    assert not session._tasks_have_this_package({}, tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert session._tasks_have_this_package({}, tmp_path)
    monkeypatch.setattr(session, "_DISTRIBUTION", "no-such-distribution")
    assert not session._tasks_have_this_package({}, tmp_path)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH")
    yield
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.mark.parametrize(("package", "is_kept_out"), [("connectors", True), ("ledger", True), ("jobs", False)])
def test_a_package_that_would_hide_ours_is_kept_out_of_the_way_of_tasks(
    package: str, is_kept_out: bool, tmp_path: Path, unset: None
) -> None:
    (tmp_path / package).mkdir()
    session._keep_path_safe(tmp_path)
    assert "PYTHONSAFEPATH" not in os.environ
    (tmp_path / package / "__init__.py").touch()
    session._keep_path_safe(tmp_path)
    assert ("PYTHONSAFEPATH" in os.environ) is is_kept_out


def test_our_own_folder_is_in_nobodys_way(unset: None) -> None:
    session._keep_path_safe(Path(session.__file__).parents[1])
    assert "PYTHONSAFEPATH" not in os.environ


def test_what_the_user_has_said_about_the_path_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    session._keep_path_safe(tmp_path)
    assert os.environ["PYTHONSAFEPATH"] == ""


def test_a_programs_own_handler_of_an_interrupt_outlives_the_start_of_spark() -> None:
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []

    def own(number: int, _frame: object) -> None:
        heard.append(number)

    try:
        for given, kept in ((own, own), (signal.default_int_handler, signal.SIG_IGN)):
            signal.signal(signal.SIGINT, given)
            with session._interrupt_kept():
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark does with its own
            assert signal.getsignal(signal.SIGINT) is kept
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_the_user_has_set_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# mine\nspark.sql.shuffle.partitions 7\nspark.master=local[4]\n\nspark.driver.extraJavaOptions -Da=b -Dc=d\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=false --jars /a.jar --master local[1] pyspark-shell"
    )
    assert session._users_settings(is_submitted=False) == {
        "spark.sql.shuffle.partitions": "7",
        "spark.master": "local[1]",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
        "spark.ui.enabled": "false",
        "spark.jars": "/a.jar",
    }
