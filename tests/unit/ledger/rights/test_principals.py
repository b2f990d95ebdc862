"""Who a credential stands for, what the file may say, and how far a scope reaches."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.rights.file import PrincipalsFile
from ledger.rights.principal import ClientAccess, Principal, Role
from ledger.rights.table import ROLES_OF, Right, may


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def read(path: Path, text: str) -> PrincipalsFile:
    return PrincipalsFile(str(write(path, text)), now_s=0.0)


WORKER = f"""
[[principal]]
name = "w"
role = "worker"
tokens = ["{sha256("old")}", "{sha256("new")}"]
certificates = ["W.example.org", "spiffe://cluster/w"]
logins = ["w-login"]
expires = 1970-01-01T00:01:40Z
types = ["convert"]
groups = [1]
tenants = ["acme"]
"""


TABLED = '[[principal]]\nname = "a"\nrole = "{}"\naccess = "{}"\n'


def test_each_of_its_credentials_stands_for_a_principal_until_it_expires(tmp_path: Path) -> None:
    found = read(tmp_path / "p.toml", WORKER)
    worker = found.of_token(b"old", 0.0)
    assert worker is not None
    assert (worker.name, worker.role, worker.types, worker.groups) == ("w", Role.WORKER, ("convert",), (1,))
    assert worker.tenants == ("acme",)
    assert found.of_token(b"new", 99.0) is worker
    assert found.of_certificate(["other", "w.EXAMPLE.org"], 0.0) is worker
    assert found.of_certificate(["spiffe://cluster/w"], 0.0) is worker
    assert found.of_login("w-login", 0.0) is worker
    for nobody in (
        found.of_token(b"old", 100.0), found.of_token(b"", 0.0), found.of_token(b"olD", 0.0),
        found.of_certificate(["sub.w.example.org"], 0.0), found.of_certificate([], 0.0), found.of_login("w", 0.0),
    ):  # fmt: skip
        assert nobody is None


def test_a_certificate_that_names_two_principals_is_nobodys(tmp_path: Path) -> None:
    text = '[[principal]]\nname="a"\nrole="replica"\ncertificates=["a"]\n'
    found = read(tmp_path / "p.toml", text + text.replace('"a"', '"b"'))
    assert found.of_certificate(["a"], 0.0) is not None
    assert found.of_certificate(["a", "b"], 0.0) is None


def test_a_client_names_tables_or_has_all(tmp_path: Path) -> None:
    text = TABLED.format("client", "write") + f'tokens = ["{sha256("a")}"]\n'
    path = tmp_path / "p.toml"
    found = read(path, text)
    all_tables = found.of_token(b"a", 0.0)
    assert all_tables is not None
    assert not all_tables.has_table_bounds
    write(path, text + 'tables_read = ["item", "sale_*"]\ntables_schema = []\n')
    found.look(2.0)
    some = found.of_token(b"a", 0.0)
    assert some is not None
    assert (some.tables_read, some.tables_write, some.tables_schema) == (("item", "sale_*"), None, ())
    assert some.has_table_bounds
    assert some != all_tables, "streams of who has other rights now are ended"


def test_entries_of_token_files_mean_what_they_always_meant(tmp_path: Path) -> None:
    text = "".join(
        f'[[token]]\nname="{role}"\nsha256="{sha256(role)}"\nrole="{role}"\n'
        for role in ("admin", "viewer", "operator")
    )
    found = read(tmp_path / "p.toml", text)
    roles = {name: found.of_token(name.encode(), 0.0) for name in ("admin", "viewer", "operator")}
    assert {name: one.role for name, one in roles.items() if one} == {
        "admin": Role.OPERATOR, "viewer": Role.AUDITOR, "operator": Role.OPERATOR,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[principal]]\nname="a"\nrole="king"\n', "role 'king' is none of replica"),
        ('[[principal]]\nname="a"\nrole="replica"\ntypes=["t"]\n', "types means nothing for the role 'replica'"),
        ('[[principal]]\nname="a"\nrole="client"\nlogs=["l"]\n', "a client may do nothing"),
        ('[[principal]]\nname="a"\nrole="tenant"\n', "needs the tenant's name"),
        ('[[principal]]\nname="a"\nrole="operator"\ntenant="t"\n', "belongs to no tenant"),
        ('[[principal]]\nname=""\nrole="replica"\n', "a name has 1 to"),
        ('[[principal]]\nname="a"\nrole="replica"\n' * 2, "two principals have this name"),
        ('[[principal]]\nname="a"\nrole="replica"\ntokens=["abc"]\n', "64 hex digits"),
        (f'[[principal]]\nname="a"\nrole="replica"\ntokens=["{"0" * 64}", "{"0" * 64}"]\n', "there twice"),
        ('[[principal]]\nname="a"\nrole="replica"\nexpires=2027-01-01T00:00:00\n', "needs its time zone"),
        ('[[principal]]\nname="a"\nrole="replica"\nright="all"\n', "unknown field"),
        (f'[[token]]\nrole="worker"\nsha256="{"0" * 64}"\n', "a token has no role 'worker'"),
        (
            '[[principal]]\nname="a"\nrole="replica"\ntables_read=["a"]',
            "tables_read means nothing for the role 'replica'",
        ),
        (TABLED.format("client", "none") + 'ledgers = "read"\ntables_read = []', "without access = 'read' or 'write'"),
        (
            TABLED.format("client", "read") + 'tables_write = ["a"]',
            "tables_write means nothing without access = 'write'",
        ),
        (TABLED.format("client", "read") + 'tables_schema = ["a"]', "tables_schema means nothing without"),
        (TABLED.format("client", "write") + 'tables_write = [""]', "names, of 1 to 1024 letters"),
        ("[[principal]", "no TOML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match="p.toml") as refused:
        read(tmp_path / "p.toml", text)
    assert says in str(refused.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "p.toml", WORKER)
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        PrincipalsFile(str(path), now_s=0.0)


def test_the_file_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "p.toml"
    found = read(path, WORKER)
    write(path, WORKER.replace(sha256("old"), sha256("newest")))
    found.look(0.5)
    assert found.of_token(b"old", 0.0), "it is looked at once a second"
    found.look(1.5)
    assert (found.of_token(b"old", 0.0), found.version) == (None, 2)
    assert found.of_token(b"newest", 0.0)
    for number, break_it in enumerate((lambda: write(path, "[[principal]"), lambda: path.chmod(0o666), path.unlink), 2):
        if path.exists():
            break_it()
            os.utime(path, ns=(1, number)) if path.exists() else None
        with caplog.at_level(logging.ERROR):
            caplog.clear()
            found.look(number * 10.0)
        assert "stay in force" in caplog.text
        assert (found.of_token(b"newest", 0.0) is not None, found.version) == (True, 2)
        assert found.failure
    write(path, WORKER)
    found.look(100.0)
    assert (found.failure, found.version) == ("", 3)
    assert found.of_token(b"old", 0.0)


def test_a_worker_has_its_own_name_and_those_that_its_entry_gives_it() -> None:
    plain = Principal(name="w[1]", role=Role.WORKER)
    names = ("w[1]", "w[1]-a", "w1", "w[1]a", "")
    assert [plain.may_work_as(name) for name in names] == [True, True, False, False, False]
    named = Principal(name="x", role=Role.WORKER, workers=("a-*-z", "b?"))
    assert [named.may_work_as(name) for name in ("a--z", "a-1-z", "b?", "bc", "x", "a-z")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert Principal(name="r", role=Role.REPLICA).may_work_as("anything")


def test_a_clients_keys_begin_as_its_prefix_does() -> None:
    client = Principal(name="c", role=Role.CLIENT, prefix=b"a/", access=ClientAccess.READ)
    assert [client.has_key(key) for key in (b"a/", b"a/x", b"a", b"b/", b"")] == [True, True, False, False, False]
    for start, end, is_inside in (
        (b"a/", b"a0", True), (b"a/b", b"a/c", True), (b"a/", None, False), (b"a/", b"a1", False), (b"", b"a0", False),
        (b"a", b"a/x", False),
    ):  # fmt: skip
        assert client.has_range(start, end) is is_inside, (start, end)
    last = Principal(name="c", role=Role.CLIENT, prefix=b"\xff\xff", access=ClientAccess.READ)
    assert last.has_range(b"\xff\xff\x00", None)
    assert not last.has_range(b"\xff", None)
    assert Principal(name="c", role=Role.CLIENT).has_range(b"", None)


def test_an_offer_beyond_the_scope_is_named() -> None:
    worker = Principal(name="w", role=Role.WORKER, types=("a",), groups=(1, 2))
    assert worker.strange(["a"], [2]) == ""
    assert worker.strange(["a", "b"], [1]) == "type 'b'"
    assert worker.strange(["a"], [0]) == "group 0"


def _of(role: Role, **scope: object) -> Principal:
    return Principal(name="x", role=role, **scope)  # type: ignore[arg-type]


def test_every_right_names_its_roles_and_no_role_has_a_right_that_it_is_not_named_for() -> None:
    assert set(ROLES_OF) == set(Right)
    for right in Right:
        for role in Role:
            principal = _of(role, access=ClientAccess.WRITE, ledgers=ClientAccess.WRITE)
            assert may(principal, right) is (role in ROLES_OF[right]), (role, right)
    assert ROLES_OF[Right.GOVERN] == {Role.OPERATOR}
    assert ROLES_OF[Right.REPORT] == {Role.REPLICA}
    workers = {right for right in Right if may(_of(Role.WORKER), right)}
    assert workers == {Right.STATUS, Right.WORK, Right.CODE_READ}


def test_a_clients_access_to_keys_and_to_ledgers_are_two_things() -> None:
    reader = _of(Role.CLIENT, access=ClientAccess.READ)
    assert [right for right in Right if may(reader, right)] == [Right.STATUS, Right.STATE_READ]
    ledgers = _of(Role.CLIENT, ledgers=ClientAccess.READ)
    assert [right for right in Right if may(ledgers, right)] == [Right.LEDGER_READ, Right.STATUS]


def test_an_auditor_of_one_tenant_sees_nothing_that_belongs_to_all() -> None:
    rights = {right for right in Right if may(_of(Role.AUDITOR, tenant="acme"), right)}
    assert rights == {Right.TASKS_READ, Right.STATUS}
