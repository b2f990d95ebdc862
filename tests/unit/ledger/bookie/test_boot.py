"""What a bookie process checks and waits for before it serves."""

from __future__ import annotations

import errno
import os
import re
import resource

import pytest
from typer.testing import CliRunner

from ledger.bookie import app
from ledger.bookie.cli import app as command
from ledger.bookie.folders import locked, prepare
from ledger.bookie.settings import BookieSettings, check_bind
from ledger.errors import MetadataUnavailableError, UsageError
from ledger.open_files import allow_files
from ledger.storage.compaction import CompactionSettings
from ledger.testing import Simulation
from ledger.tls import TlsSettings


def test_a_lost_reply_of_the_metadata_store_is_asked_for_again() -> None:
    attempts = []

    async def attempt() -> None:
        attempts.append(1)
        if len(attempts) < 4:
            raise MetadataUnavailableError("the reply was lost")

    Simulation(1).run(app._answered(attempt))
    assert len(attempts) == 4


def test_a_metadata_store_that_never_answers_ends_the_boot_after_a_minute() -> None:
    simulation = Simulation(1)

    async def attempt() -> None:
        raise MetadataUnavailableError("no reply")

    with pytest.raises(MetadataUnavailableError):
        simulation.run(app._answered(attempt))
    assert 60 <= simulation.loop.time() < 65


@pytest.mark.parametrize(("number", "code"), [(errno.EIO, 74), (errno.EACCES, 1)])
def test_a_start_that_the_disk_refuses_ends_with_one_error_that_names_the_file(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    async def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number), "/b/journal/current/VERSION")

    monkeypatch.setattr(app, "run_bookie", refuse)
    ended = CliRunner().invoke(command, ["run", "--data-dir", "/b", "--port", "1", "--metadata-uri", "zk://h:1/l"])
    assert ended.exit_code == code
    assert f"{os.strerror(number)}: '/b/journal/current/VERSION'" in ended.output
    assert ("dmesg" in ended.output) is (code == app.EXIT_STORAGE_FAILED)


def test_directories_are_held_once_and_named_once(tmp_path) -> None:
    folder = str(tmp_path / "a")
    prepare([folder], is_fsync=False)
    with locked([folder]), pytest.raises(UsageError, match="in use by another bookie process"), locked([folder]):
        pass
    with locked([folder]):
        pass
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="name each once"):
        prepare([folder, str(tmp_path / "b")], is_fsync=False)


def test_beyond_loopback_it_takes_tls_or_a_word() -> None:
    for bind in ("127.0.0.1", "::1", "localhost"):
        check_bind(bind, is_insecure=False)
    with pytest.raises(UsageError, match="--insecure"):
        check_bind("0.0.0.0", is_insecure=False)
    check_bind("0.0.0.0", is_insecure=True)
    check_bind("0.0.0.0", is_insecure=False, has_tls=True)


def test_tls_that_is_required_needs_a_certificate() -> None:
    assert BookieSettings("/b", 1).tls_policy().context is None
    with pytest.raises(UsageError, match="--tls-cert"):
        BookieSettings("/b", 1, is_tls_required=True).tls_policy()
    with pytest.raises(UsageError, match="needs a certificate"):
        BookieSettings("/b", 1, tls=TlsSettings(ca="ca.pem")).tls_policy()


def test_ledger_directories_are_those_named_or_one_below_the_data_directory() -> None:
    assert BookieSettings("/b", 1).store_settings().ledger_dirs == ("/b/ledgers/current",)
    several = BookieSettings("/b", 1, ledger_dirs=("/d1", "/d2"), journal_dir="/j").store_settings()
    assert (several.ledger_dirs, several.journal.folder) == (("/d1/current", "/d2/current"), "/j/current")


def test_compaction_thresholds_reach_the_storage_and_odd_ones_are_refused() -> None:
    chosen = CompactionSettings(minor_share=0.4, major_interval_s=7200.0, bytes_per_s=8 << 20)
    assert BookieSettings("/b", 1, compaction=chosen).store_settings().compaction == chosen
    for odd, told in (
        (CompactionSettings(minor_share=1.5), "--minor-compaction-share 1.5"),
        (CompactionSettings(major_share=-0.1), "--major-compaction-share -0.1"),
        (CompactionSettings(major_share=float("nan")), "--major-compaction-share nan"),
        (CompactionSettings(minor_interval_s=0.0), "--minor-compaction-s 0"),
        (CompactionSettings(bytes_per_s=0), "never end"),
    ):
        with pytest.raises(UsageError, match=re.escape(told)):
            BookieSettings("/b", 1, compaction=odd).store_settings()


def test_compaction_flags_come_from_the_command_line_or_the_environment(monkeypatch) -> None:
    told = []

    async def run_bookie(settings, on_ready) -> int:
        told.append(settings.compaction)
        return 0

    monkeypatch.setattr(app, "run_bookie", run_bookie)
    arguments = ["run", "--port", "1", "--data-dir", "/b", "--major-compaction-share", "0.5"]
    environment = {"RSM_BOOKIE__MINOR_COMPACTION_S": "60", "RSM_BOOKIE__COMPACTION_MIB_PER_S": "4"}
    result = CliRunner().invoke(command, arguments, env=environment)
    assert result.exit_code == 0, result.output
    assert told == [CompactionSettings(major_share=0.5, minor_interval_s=60.0, bytes_per_s=4 << 20)]
    assert CliRunner().invoke(command, [*arguments, "--minor-compaction-share", "2"]).exit_code == 2


def test_the_limit_of_open_files_bounds_the_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert allow_files(10) == 10
        if hard != resource.RLIM_INFINITY:
            assert allow_files(hard) == hard - 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
