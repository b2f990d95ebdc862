"""A leader and a follower of SQL tables, entry by entry, and what their files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession
from rsm_spark.core.machine import MachineDescription
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import SqlReply, SqlStatement, SqlTransaction, decode_reply, encode
from rsm_spark.sql.records import DESCRIPTION

SESSION = bytes(16)
LOG_ID = bytes(16)

Contents = dict[str, Any]


def transaction(*statements: Any) -> bytes:
    """Return a command of statements: SQL, or (SQL, parameters[, expected])."""
    made = (SqlStatement(one) if isinstance(one, str) else SqlStatement(*one) for one in statements)
    return encode(SqlTransaction(tuple(made)))


def contents(path: Path | str) -> Contents:
    """Return all that a client can see of a file as of its last commit: schema, rows by rowid, sequences."""
    connection = apsw.Connection(str(path))
    try:
        return contents_of(connection)
    finally:
        connection.close()


def contents_of(connection: apsw.Connection) -> Contents:
    objects: list[Any] = connection.execute(
        "SELECT name, type, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE '\\_rsm\\_%' ESCAPE '\\' "
        "AND tbl_name NOT LIKE '\\_rsm\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    found: Contents = {"schema": objects}
    for name, kind, _, sql in objects:
        if kind == "table":
            by_rowid = "WITHOUT ROWID" not in (sql or "").upper()
            what = "rowid, *" if by_rowid and not name.startswith("sqlite_") else "*"
            rows = connection.execute(f'SELECT {what} FROM "{name}"').fetchall()
            found[name] = sorted(rows, key=repr)
    return found


class SqlPair:
    """Machines of a leader and a follower.

    Args:
        folder: Of their files.
        settings: Limits.
        machine: Makes a machine; a test may plant a bug in it.
        clock_s: Of the machines: time stands still, unless a test lets it pass.
        description: By which the machines log and fold.

    """

    def __init__(
        self,
        folder: Path,
        settings: SqlSettings | None = None,
        machine: Callable[..., SqlMachine] = SqlMachine,
        clock_s: Callable[[], float] = lambda: 0.0,
        description: MachineDescription = DESCRIPTION,
        **limits: Any,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.make = machine
        self.leader = machine(folder / "leader.db", settings, clock_s)
        self.follower = machine(folder / "follower.db", settings, clock_s)
        self.follow(description)
        self.state = ReplicatedState(self.leader, LOG_ID)
        self.followed = ReplicatedState(self.follower, LOG_ID)
        self.payloads: list[bytes] = []
        self._limits = BatchLimits(
            **({"entry_bytes_max": 4 << 20, "entry_commands_max": 4096, "sessions_max": 9} | limits)
        )
        self._sequence = 0
        self._entries = 0
        self._waiting: list[Submission] = []
        self.queue = RequestQueue()
        self.lead(self.state)

    def follow(self, description: MachineDescription) -> None:
        """Have both machines hear of the log's version, as a record of it tells them."""
        self.leader.follow(description)
        self.follower.follow(description)

    def lead(self, state: ReplicatedState) -> None:
        """Go on with another state as the leader's."""
        self.state = state
        self.composer = Composer(
            state,
            self._limits,
            leader_epoch=1,
            promoted_ms=0,
            session_ttl_ms=10**12,
            checkpoint_records=10**9,
        )

    def submit(self, *commands: bytes) -> Submission:
        """Queue commands of the one session."""
        requests: list[Any] = [] if self._sequence else [OpenSession(SESSION)]
        for command in commands:
            self._sequence += 1
            requests.append(Command(SESSION, self._sequence, self._sequence - 1, command))
        submission = Submission(requests, None)
        self.queue.add(submission)
        return submission

    def compose(self) -> Batch:
        """Decide what is queued: the leader's file does not have it yet."""
        batch = self.composer.compose(self.queue, self._entries + 1)
        assert not self.composer.failures, self.composer.failures
        return batch

    def confirm(self, batch: Batch) -> None:
        """Take an entry as confirmed; the follower folds it."""
        self._entries += 1
        self.payloads.append(batch.payload)
        position = LogPosition(1, self._entries)
        batch.confirm()
        self.state.keep(position)
        self.followed.apply_entry(batch.payload)
        self.followed.keep(position)

    def run(self, *commands: bytes) -> list[SqlReply]:
        """Run commands in one entry, confirm it, and compare; return the replies."""
        submission = self.submit(*commands)
        while submission.decided < len(submission.requests):
            self.confirm(self.compose())
        self.check()
        return replies(submission)

    def do(self, *statements: Any) -> SqlReply:
        """Run one transaction."""
        return self.run(transaction(*statements))[-1]

    def check(self) -> None:
        """Compare leader and follower: digests, files, and each digest with what its file holds."""
        assert self.state.digest == self.followed.digest
        self.state.validate()
        self.followed.validate()
        assert contents(self.leader.path) == contents(self.follower.path)

    def close(self) -> None:
        self.leader.close()
        self.follower.close()


def replies(submission: Submission) -> list[SqlReply]:
    """Return the replies to the commands of a submission."""
    found = []
    for request, answer in zip(submission.requests, submission.answers, strict=True):
        if isinstance(request, Command):
            assert answer.status is AnswerStatus.OK, answer
            found.append(decode_reply(answer.payload))
    return found
