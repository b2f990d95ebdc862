"""Choice of the snapshot that a log begins with: what is not of one history, or not what was asked for, is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rsm_spark.backup.manifest import BackupError, CorruptBackupError
from rsm_spark.backup.state_choice import StateRequest, choose_state
from rsm_spark.core.machine import MachineDescription
from rsm_spark.snapshots.manifest import SnapshotManifest


def _held(revision: int, **changes: Any) -> SnapshotManifest:
    made = SnapshotManifest(
        log_name="orders", log_id="01" * 16, revision=revision, ledger_id=3, entry_id=revision,
        prefix_hash=f"{revision:064x}", digest="02" * 16, row_count=5, leader_epoch=1, logged_ms=1_000 + revision,
        created_ms=0, machine=MachineDescription("map", 1, (), ()),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def _choose(*held: SnapshotManifest, damaged: tuple[str, ...] = (), **asked: Any) -> SnapshotManifest:
    source: Any = None
    request = StateRequest(
        name="orders", log="orders", rsm_root="/rsm", source=source, shown="folder x", is_open_place=False, **asked
    )
    return choose_state(request, held, damaged)


def test_the_newest_is_chosen_or_the_one_that_was_asked_for() -> None:
    assert _choose(_held(9), _held(4)).revision == 9
    assert _choose(_held(9), _held(4), revision=4).revision == 4
    assert _choose(_held(9), _held(12, contradiction="a replica said so"), at_least=9).revision == 9


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ((_held(4, log_id="03" * 16), _held(9)), "snapshots of 2 logs"),
        ((_held(4, leader_epoch=2), _held(9)), "not of one history"),
        ((_held(4), _held(9, logged_ms=5)), "not of one history"),
        ((_held(4), _held(4, prefix_hash="0" * 64)), "not of one history"),
        ((_held(4, digest="../../etc"),), "holds what no replica writes"),
        ((_held(1 << 63),), "holds what no replica writes"),
    ],
)
def test_snapshots_that_contradict_each_other_are_refused(held: tuple[SnapshotManifest, ...], words: str) -> None:
    with pytest.raises(CorruptBackupError, match=words):
        _choose(*held)


def test_an_older_state_is_taken_only_if_that_is_said() -> None:
    newer = f"{12:020d}-00000000"
    with pytest.raises(CorruptBackupError, match="say --revision 9"):
        _choose(_held(9), damaged=(newer,))
    assert _choose(_held(9), damaged=(newer,), revision=9).revision == 9
    assert _choose(_held(9), damaged=(f"{4:020d}-00000000",)).revision == 9
    with pytest.raises(BackupError, match="an older state in the place of a newer"):
        _choose(_held(9), at_least=10)
    with pytest.raises(BackupError, match=r"no whole snapshot of log orders. There are: none; of log other"):
        _choose(_held(9, log_name="other"))


def test_one_of_several_logs_of_a_name_is_chosen_by_its_id() -> None:
    assert _choose(_held(4, log_id="03" * 16), _held(9), log_id="03" * 16).revision == 4
