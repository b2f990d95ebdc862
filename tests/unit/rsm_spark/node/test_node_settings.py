"""Which files of a machine are understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import UsageError
from rsm_spark.node.settings import grace_ms, read_node_file, words_of


def _file(folder: Path, text: str, *confs: str) -> Path:
    for conf in confs:
        (folder / conf).write_text("")
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_names_and_files_follow_from_the_kind(tmp_path: Path) -> None:
    text = 'token_file = "token"\n[[process]]\nkind = "bookie"\n[[process]]\nkind = "gateway"\nname = "logs"\n'
    settings = read_node_file(_file(tmp_path, text, "bookie.toml", "logs.toml"))
    bookie, gateway = settings.process
    assert (bookie.name, bookie.conf) == ("bookie", str(tmp_path / "bookie.toml"))
    assert words_of(gateway) == ["log", "serve", "--conf", str(tmp_path / "logs.toml")]
    assert (grace_ms(bookie), grace_ms(gateway)) == (65_000, 10_000)
    assert settings.door().token_file == str(tmp_path / "token")


def test_a_process_has_variables_of_its_own(tmp_path: Path) -> None:
    text = (
        '[environment]\nA = "1"\n[[process]]\nkind = "bookie"\n[process.environment]\nA = "2"\n'
        '[[process]]\nkind = "gateway"\n'
    )
    settings = read_node_file(_file(tmp_path, text, "bookie.toml", "gateway.toml"))
    assert settings.environment == {"A": "1"}
    assert [one.environment for one in settings.process] == [{"A": "2"}, {}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing required field `process`"),
        ("process = []", "nothing to run"),
        ('[[process]]\nkind = "spark"', "no process of kind 'spark': use one of"),
        ('[[process]]\nkind = "store"', "there is no file .*store.toml"),
        ('[[process]]\nkind = "bookie"\nprot = 1', "unknown field `prot`"),
        ('[[process]]\nkind = "bookie"\n[[process]]\nkind = "bookie"', "two processes are called 'bookie'"),
        ('[[process]]\nkind = "bookie"\nname = "a\\nb"', "printable"),
        ('[[process]]\nkind = "bookie"\n[process.environment]\nA = 1', "expected a string|Expected `str`"),
        ("[[process", "cannot be read as TOML"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_node_file(_file(tmp_path, text, "bookie.toml"))
