"""What is set in Spark, as the session builder and the file for spark-submit have it."""

from __future__ import annotations

from pathlib import Path

from connectors.session import _defaults
from connectors.spark_settings import DELTA_JARS, SPARK_SETTINGS, When, chosen_settings, defaults_file

_FILE = Path(__file__).resolve().parents[3] / "conf" / "spark-defaults.conf"


def test_the_file_for_spark_submit_is_current() -> None:
    assert _FILE.read_text(encoding="utf-8") == defaults_file(), "run `make conf`"


def test_what_is_in_force_in_the_file_is_what_the_builder_sets_everywhere() -> None:
    everywhere = chosen_settings(frozenset({When.POOL}), core_count=4, jars="")
    assert _defaults(_FILE) == everywhere


def test_what_is_for_some_programs_only_becomes_a_setting_by_taking_the_mark_away(tmp_path: Path) -> None:
    lines = defaults_file().splitlines()
    keys = {setting.key for setting in SPARK_SETTINGS}
    bare = [line.removeprefix("# ") if line.removeprefix("# ").split(" ")[0] in keys else line for line in lines]
    (tmp_path / "all.conf").write_text("\n".join(bare))
    found = _defaults(tmp_path / "all.conf")
    built = chosen_settings(frozenset(When), core_count=8, jars=found[DELTA_JARS])
    assert found == built


def test_each_setting_is_named_once_and_says_why() -> None:
    keys = [setting.key for setting in SPARK_SETTINGS]
    assert len(set(keys)) == len(keys)
    assert [setting.key for setting in SPARK_SETTINGS if not setting.why.endswith(".")] == []


def test_a_machine_of_one_core_shuffles_into_two() -> None:
    assert chosen_settings(frozenset({When.LOCAL}), core_count=1, jars="")["spark.sql.shuffle.partitions"] == "2"
