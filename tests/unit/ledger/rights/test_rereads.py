"""A file of rights that was edited while servers run is a line of the audit: names and roles, no secret, told once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ledger.audit_lines import open_audit_file
from ledger.login import UsersFile
from ledger.logs import AUDIT_LOGGER
from ledger.rereads import Reread, on_reread
from ledger.rights.file import PrincipalsFile
from ledger.rights.token_file import TokenFile
from rsm_spark.core.commands import Answer, AnswerStatus, Audited, Request
from rsm_spark.log.key_file import KeyFile, new_key, write_key_file
from rsm_spark.runtime.auditing import AuditTrail


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


ANN = f'[[principal]]\nname = "ann"\nrole = "operator"\ntokens = ["{sha256("ann-1")}"]\n'
BOB = f'[[principal]]\nname = "bob"\nrole = "tenant"\ntenant = "acme"\ntokens = ["{sha256("bob-1")}"]\n'


@pytest.fixture
def told() -> Iterator[list[Reread]]:
    found: list[Reread] = []
    end = on_reread(found.append)
    yield found
    end()


def write(path: Path, text: str) -> Path:
    """Replace a file, as who edits one does: another inode each time."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)
    return path


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        (ANN, "-bob (tenant)"),
        (ANN + BOB + BOB.replace("bob", "eve").replace(sha256("bob-1"), sha256("e")), "+eve (tenant)"),
        (ANN + BOB.replace('"tenant"\ntenant = "acme"', '"operator"'),
         "bob: role tenant -> operator; tenant acme -> -"),
        (ANN + BOB.replace("acme", "evil"), "bob: tenant acme -> evil"),
        (ANN + BOB.replace(sha256("bob-1"), sha256("bob-2")), "bob: tokens +1 -1"),
        (ANN + BOB + 'certificates = ["b.example.org"]\n', "bob: certificates +b.example.org"),
        (ANN + BOB + f'[[token]]\nsha256 = "{sha256("t")}"\nrole = "viewer"\n', "+a token without a name (auditor)"),
    ],
)  # fmt: skip
def test_an_edit_of_principals_is_told_by_names_and_roles_and_once(
    tmp_path: Path, told: list[Reread], caplog: pytest.LogCaptureFixture, after: str, changed: str
) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    path = write(tmp_path / "principals.toml", ANN + BOB)
    readers = [PrincipalsFile(str(path), now_s=0.0) for _ in range(2)]
    write(path, after)
    for reader in readers:
        reader.look(2.0)
    (found,) = told
    assert (found.what, found.changed, found.failure) == ("principals", changed, "")
    (line,) = caplog.records
    assert (line.target, line.outcome) == (changed, "in force")  # type: ignore[attr-defined]
    assert not any(sha256(token)[:8] in caplog.text for token in ("ann-1", "bob-1", "bob-2", "e", "t"))


def test_what_changes_nothing_is_not_told_and_a_broken_file_is(tmp_path: Path, told: list[Reread]) -> None:
    path = write(tmp_path / "principals.toml", ANN)
    found = PrincipalsFile(str(path), now_s=0.0)
    write(path, f"# a remark\n{ANN}")
    found.look(2.0)
    assert (found.version, told) == (2, [])
    write(path, "[[principal]")
    found.look(4.0)
    (one,) = told
    assert one.failure == found.failure
    assert one.line().outcome.startswith("not used: ")


def test_tokens_users_and_keys_of_logs_are_told_too(tmp_path: Path, told: list[Reread]) -> None:
    tokens = write(tmp_path / "token", "a" * 32)
    of_tokens = TokenFile(str(tokens), now_s=0.0)
    write(tokens, "b" * 32 + "\n" + "a" * 32)
    of_tokens.look(2.0)
    users = write(tmp_path / "users", "digest:ann:secret-1\ndigest:bob:secret-2\n")
    of_users = UsersFile(str(users), now_s=0.0)
    write(users, "digest:ann:secret-3\ndigest:eve:secret-4\n")
    of_users.look(2.0)
    old, new = new_key(), new_key()
    write_key_file(tmp_path / "log.key", [old], replace=False)
    of_keys = KeyFile.read(tmp_path / "log.key")
    write_key_file(tmp_path / "log.key", [old, new], replace=True)
    assert of_keys.refresh()
    assert [(one.what, one.changed) for one in told] == [
        ("tokens", "tokens +1 -0, another one is sent"),
        ("users", "+eve, -bob, ann: password"),
        ("log key", f"key +{new.id}"),
    ]
    said = " ".join(one.changed + one.line().target for one in told)
    assert not any(secret in said for secret in ("aaaa", "bbbb", "secret-", new.secret[:8], old.secret[:8]))


class _Replica:
    leader_address = None

    def __init__(self, *statuses: AnswerStatus) -> None:
        self.statuses = list(statuses)
        self.logged: list[Request] = []

    def submit(self, requests: list[Request]) -> asyncio.Future[Sequence[Answer]]:
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self.logged += requests
        future.set_result([Answer(self.statuses.pop(0), 7, b"")])
        return future


FOUND = Reread("principals", "/etc/p.toml", "+eve (tenant)")


def test_the_leader_logs_it_a_follower_only_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_spark.runtime.auditing._PAUSE_S", 0.0)
    replica = _Replica(AnswerStatus.OVERLOADED, AnswerStatus.OK, AnswerStatus.NOT_LEADER)
    trail = AuditTrail(replica, "broker")  # type: ignore[arg-type]
    asyncio.run(trail.reread(FOUND))
    asyncio.run(trail.reread(FOUND))
    assert len(replica.logged) == 3
    assert {type(one) for one in replica.logged} == {Audited}
    logged = replica.logged[1]
    assert isinstance(logged, Audited)
    assert (logged.action, logged.target, logged.outcome) == ("principals read again", "+eve (tenant)", "in force")
    assert logged.source.startswith("file /etc/p.toml on ")


def test_each_process_with_an_audit_file_has_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "principals.toml", ANN + BOB)
    handler = open_audit_file(str(tmp_path / "audit.jsonl"))
    try:
        found = PrincipalsFile(str(path), now_s=0.0)
        write(path, ANN)
        found.look(2.0)
    finally:
        logging.getLogger(AUDIT_LOGGER).removeHandler(handler)
        handler.close()
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    said = json.loads(line)
    assert (said["action"], said["target"], said["outcome"]) == ("principals read again", "-bob (tenant)", "in force")
