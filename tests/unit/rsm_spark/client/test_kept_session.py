"""A session that commands keep in a file: whatever becomes of it, a command is applied once and answered as itself."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rsm_spark.client.command_stream import CommandStream
from rsm_spark.client.kept_session import FILES, RESERVED, KeptSession
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.operation import Ending, Message
from tests.unit.rsm_spark.client.test_command_stream import World, answer, composed, put

SESSION = b"s" * 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sessions"


def kept(folder: Path, number: int = 7) -> Path:
    """Have a session kept, and return its file."""
    first = KeptSession(folder, "orders")
    assert first.take() is None
    first.give_back((SESSION, number))
    (path,) = folder.iterdir()
    return path


def test_the_next_command_goes_on_above_all_numbers_and_the_file_is_its_owners_alone(folder: Path) -> None:
    path = kept(folder)
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    before = time.time_ns()
    following = KeptSession(folder, "orders")
    found = following.take()
    assert found is not None
    session, number = found
    assert (session, following.take()) == (SESSION, None)
    assert before <= number <= time.time_ns()
    following.give_back((session, number + 1))
    ahead = time.time_ns() + 10**18  # Another machine's clock, or this one's was set back since.
    third = KeptSession(folder, "orders")
    third.take()
    third.give_back((SESSION, ahead))
    assert KeptSession(folder, "orders").take() == (SESSION, ahead)
    assert KeptSession(folder, "bank").take() is None


def test_whoever_was_killed_is_passed_by(folder: Path) -> None:
    kept(folder)
    killed = KeptSession(folder, "orders")
    found = killed.take()
    assert found is not None
    assert killed._file is not None
    assert KeptSession(folder, "orders").take() is None, "one process at a time"
    os.close(killed._file)
    following = KeptSession(folder, "orders").take()
    assert following is not None
    assert following[1] >= found[1] + RESERVED


def test_commands_at_once_have_sessions_of_their_own_and_keep_as_many_as_there_are_files(folder: Path) -> None:
    together = [KeptSession(folder, "orders") for _ in range(FILES + 2)]
    assert [one.take() for one in together] == [None] * len(together)
    for number, one in enumerate(together):
        one.give_back((bytes([number]) * 16, 1))
    again = [KeptSession(folder, "orders") for _ in range(FILES + 2)]
    found = [one.take() for one in again]
    assert [taken[0][0] for taken in found if taken is not None] == list(range(FILES))
    assert found[FILES:] == [None, None]
    for one in again:
        one.give_back(None)


def test_a_session_in_which_a_command_has_no_known_end_is_not_kept(folder: Path) -> None:
    path = kept(folder)
    doubtful = KeptSession(folder, "orders")
    assert doubtful.take() is not None
    doubtful.give_back(None)
    assert path.read_bytes() == b""
    assert KeptSession(folder, "orders").take() is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff", b'{"session": 1, "number": 1}', b'{"session": "zz", "number": 1}',
        b'{"session": "00", "number": 1}', b'{"session": "%s", "number": -1}' % (b"00" * 16),
        b'{"session": "%s", "number": 9223372036854775807}' % (b"00" * 16), b" " * 5_000,
    ],
)  # fmt: skip
def test_a_file_that_holds_no_session_is_written_anew(folder: Path, content: bytes) -> None:
    path = kept(folder)
    path.write_bytes(content)
    following = KeptSession(folder, "orders")
    assert following.take() is None
    following.give_back((SESSION, 5))
    assert json.loads(path.read_bytes()) == {"session": SESSION.hex(), "number": 5}


def test_what_others_may_have_written_is_neither_read_nor_written(folder: Path, tmp_path: Path) -> None:
    path = kept(folder)
    content = path.read_bytes()
    for mode in (0o644, 0o620, 0o602):
        path.chmod(mode)
        stranger = KeptSession(folder, "orders")
        assert stranger.take() is None
        stranger.give_back((b"e" * 16, 1))
        assert path.read_bytes() == content
        (folder / "orders-1").unlink()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    linked = KeptSession(folder, "orders")
    assert linked.take() is None
    linked.give_back((b"e" * 16, 1))
    assert (tmp_path / "elsewhere").read_bytes() == content
    path.unlink()
    os.mkfifo(path, 0o600)
    piped = KeptSession(folder, "orders")
    assert piped.take() is None
    piped.give_back((b"e" * 16, 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_or_home_is_left_alone(folder: Path) -> None:
    path = kept(folder)
    content = path.read_bytes()
    os.chown(path, 65_534, 65_534)
    stranger = KeptSession(folder, "orders")
    assert stranger.take() is None
    stranger.give_back((b"e" * 16, 1))
    assert path.read_bytes() == content
    os.chown(folder.parent, 65_534, 65_534)
    for place in (folder, folder.parent / "not made yet"):
        os.chown(folder, 65_534, 65_534)
        as_sudo = KeptSession(place, "orders")
        assert as_sudo.take() is None
        as_sudo.give_back((b"e" * 16, 1))
    assert [one.name for one in folder.parent.iterdir()] == ["sessions"]


def test_without_a_home_or_room_a_command_opens_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (None, tmp_path / "file" / "sessions"):
        (tmp_path / "file").touch()
        homeless = KeptSession(place, "orders")
        assert homeless.take() is None
        homeless.give_back((SESSION, 1))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    for log, token in (("orders", ""), ("bank", ""), ("orders", "/ann.token")):
        monkeypatch.setenv("RSM_STORE__TOKEN_FILE", token)
        one = KeptSession.of_user(log, None)
        one.take()
        one.give_back((SESSION, 1))
    assert len(list((tmp_path / "mine" / "rsm-spark" / "sessions").iterdir())) == 3
    assert not folder.exists()


def test_files_that_nobody_has_used_for_days_go_with_the_next_new_one(folder: Path) -> None:
    path = kept(folder)
    os.utime(path, (0, time.time() - 90_000))
    newer = KeptSession(folder, "bank")
    newer.take()
    newer.give_back((SESSION, 1))
    assert [one.name for one in folder.iterdir()] == ["bank-0"]


def test_a_kept_session_needs_no_opening_and_one_that_has_ended_is_opened_anew() -> None:
    client = CommandStream(lambda: b"n" * 16)
    client.go_on(SESSION, 1_000)
    client.submit(put(1))
    message = composed(client)
    assert (message.session, message.opens_session, message.answered_up_to) == (SESSION, False, 1_000)
    assert [one.sequence for one in message.commands] == [1_001]
    assert client.kept == (SESSION, 1_001)
    assert answer(client, message, AnswerStatus.SESSION_EXPIRED) == []
    assert client.resume() == []
    assert client.kept is None
    opening = composed(client)
    assert (opening.session, opening.opens_session) == (b"n" * 16, True)
    answer(client, opening)
    (ended,) = answer(client, composed(client))
    assert (ended.outcome, client.kept) == (Ending.ANSWERED, (b"n" * 16, 1))


class Shell(World):
    """Commands one after the other, each a process of its own; some are killed, and some find an older file."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.strays: list[Message] = []  # Of processes that have gone: they arrive late, or never.
        self.files: list[bytes] = []

    def run(self) -> None:
        path = self.folder / "orders-0"
        if path.exists():
            self.files.append(path.read_bytes())
            if self.rng.random() < 0.2:
                path.write_bytes(self.rng.choice(self.files))
        process = KeptSession(self.folder, "orders")
        self.client = CommandStream(lambda: self.rng.randbytes(16))
        found = process.take()
        if found is not None:
            self.client.go_on(*found)
        self.submit()
        for _ in range(self.rng.randint(1, 40)):
            if self.strays and self.rng.random() < 0.1:
                self.execute(self.strays.pop(self.rng.randrange(len(self.strays))), None)
            self.step()
        self.strays += self.network
        self.network.clear()
        if self.rng.random() < 0.3:
            if process._file is not None:
                os.close(process._file)  # Killed: nothing more is written.
        else:
            self.client.on_lost()
            self.end(self.client.close())
            process.give_back(self.client.kept)


@pytest.mark.parametrize("seed", range(60))
def test_every_command_of_many_processes_is_applied_once_and_has_its_own_answer(seed: int, folder: Path) -> None:
    shell = Shell(seed, folder)
    for _ in range(40):
        shell.run()
    applied: dict[bytes, int] = {}
    for _, _, payload in shell.group.executed:
        applied[payload] = applied.get(payload, 0) + 1
    assert set(applied.values()) <= {1}, "applied twice"
    ends = [(one.is_query, one.outcome, one.ticket, one.payload) for one in shell.ended]
    assert ends
    for is_query, outcome, sent, said in ends:
        if outcome is Ending.ANSWERED:
            assert said in shell.said[sent], "answered as another command"
            assert is_query or applied[sent] == 1, "answered, and not applied"
        if not is_query and outcome is Ending.NEVER_APPLIED:
            assert sent not in applied, "said not applied, and it was"
