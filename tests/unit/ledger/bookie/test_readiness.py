"""When a bookie says that it is ready, and who believes it for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from ledger.bookie.readiness import BookieHealth, ReadinessKeeper, readiness
from ledger.ports import SessionState
from ledger.readiness import AGE_S_MAX, Readiness, read_readiness, write_readiness

_WELL = BookieHealth(SessionState.CONNECTED, is_registered=True, is_read_only=False, is_in_limbo=False, batch_count=1,
                    is_writing=False)  # fmt: skip


def _with(**changes: object) -> BookieHealth:
    return msgspec.structs.replace(_WELL, **changes)


@pytest.mark.parametrize(
    ("state", "stands_s", "away_s", "is_ready", "words"),
    [
        (_WELL, 0, 0, True, "ready"),
        (_with(is_in_limbo=True), 0, 0, True, "limbo"),
        (_with(is_writing=True), 4.9, 0, True, "ready"),
        (_with(is_writing=True), 5.0, 0, False, "journal has waited for the disk for 5 s"),
        (_with(failure="no space"), 0, 0, False, "journal has stopped: no space"),
        (_with(session=SessionState.SUSPENDED), 0, 9.9, True, "ready"),
        (_with(session=SessionState.SUSPENDED), 0, 10.0, False, "ZooKeeper is away"),
        (_with(session=SessionState.LOST, is_registered=False), 0, 3, False, "session with ZooKeeper is lost"),
        (_with(is_registered=False), 0, 0, False, "not registered"),
        (_with(is_read_only=True), 0, 0, False, "read-only"),
    ],
)
def test_a_bookie_is_ready_when_it_is_registered_writable_and_its_journal_goes_on(
    state: BookieHealth, stands_s: float, away_s: float, is_ready: bool, words: str
) -> None:
    found, said = readiness(state, stands_s=stands_s, away_s=away_s, session_s=10.0)
    assert found is is_ready
    assert words in said


def test_a_file_is_believed_for_five_seconds(tmp_path: Path) -> None:
    assert "it does not serve" in read_readiness(tmp_path, 0.0).words
    said = Readiness(is_ready=True, words="ready", pid=7, said_at_s=100.0)
    write_readiness(tmp_path, said)
    assert read_readiness(tmp_path, 100.0 + AGE_S_MAX) == said
    late = read_readiness(tmp_path, 100.1 + AGE_S_MAX)
    assert (late.is_ready, late.pid) == (False, 7)
    assert "stands still" in late.words
    assert not read_readiness(tmp_path, 99.0).is_ready  # Of another boot of the machine.
    (tmp_path / "ready.json").write_bytes(b"{")
    assert "cannot be read" in read_readiness(tmp_path, 100.0).words


def test_a_batch_of_the_journal_is_timed_from_its_own_start(tmp_path: Path) -> None:

    async def main() -> list[bool]:
        now_s = 1000.0
        keeper = ReadinessKeeper(tmp_path, session_s=10.0)
        found = []
        for step_s, state in (
            (0, _with(is_writing=True)),
            (4, _with(is_writing=True, batch_count=2)),
            (4, _with(is_writing=True, batch_count=2)),
            (2, _with(is_writing=True, batch_count=2)),
            (1, _WELL),
        ):
            now_s += step_s
            await keeper.say(state, now_s)
            found.append(read_readiness(tmp_path, now_s).is_ready)
        await keeper.forget()
        return found

    assert asyncio.run(main()) == [True, True, True, False, True]
    assert not any(tmp_path.iterdir())
