"""Who may do what at a bookie: every operation and role, by certificate and log-in, and what changes while it runs."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import uvloop

from ledger.bookie.admission import ConnectionAdmission
from ledger.bookie.rights import OPEN_REQUESTS, RIGHTS
from ledger.bookie.server import ServerSettings
from ledger.bookie.tls import TlsPolicy
from ledger.rights.principal import Role
from ledger.rights.table import ROLES_OF, Right
from ledger.testing import SimDisk
from ledger.tls import ClientContexts, TlsSettings, client_context, server_context
from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.codes import Status
from ledger.wire.sasl_digest import PLUGIN, ClientLogin
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, add, fence, read
from tests.unit.ledger.bookie.bookie_port import Port, Talk
from tests.unit.ledger.bookie.test_tls import Authority, secured
from tests.wall_clock import SetClock

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
SCOPES = {"client": 'ledgers = "write"', "tenant": 'tenant = "t"'}


def entry(name: str, role: str, more: str = "") -> str:
    scope = more or SCOPES.get(role, "")
    return f'[[principal]]\nname="{name}"\nrole="{role}"\ncertificates=["{name}"]\nlogins=["{name}"]\n{scope}\n'


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


class World:
    """A bookie with principals and users, and certificates for everybody."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "ca")
        reader = entry("reader", "client", 'ledgers = "read"')
        keys_only = entry("keys-only", "client", 'access = "write"')
        self.file = folder / "principals.toml"
        write(self.file, "".join([*(entry(role.value, role.value) for role in Role), reader, keys_only]))
        self.users = folder / "users"
        names = [*(role.value for role in Role), "stranger"]
        self.users.write_text("".join(f"digest:{name}:pass-of-{name}\n" for name in names))
        self._certs: dict[str, dict[str, Any]] = {}

    def cert(self, name: str) -> dict[str, Any]:
        if name not in self._certs:
            self._certs[name] = self.authority.sign(name, host=f"IP:127.0.0.1,DNS:{name}")
        return self._certs[name]

    async def talk(self, port: Port, name: str, codec=v3) -> Talk:
        shown = TlsSettings(**self.cert(name), ca=self.authority.ca)
        return await secured(port, client_context(shown), codec=codec)

    def serve(self, scenario, *, by_login: bool = False, loop: str = "asyncio") -> None:
        async def run() -> None:
            settings = ServerSettings(
                principals=str(self.file), auth_file=str(self.users) if by_login else None, times_check_s=0.2
            )
            tls = TlsPolicy(server_context(TlsSettings(**self.cert("bookie"), ca=self.authority.ca)), not by_login)
            bench = Bench(
                SimDisk(random.Random(1)), journal={"file_bytes": 1 << 22}, server=settings,
                tls=TlsPolicy() if by_login else tls,
            )  # fmt: skip
            await bench.start()
            port = Port(bench, await bench.server.listen("127.0.0.1", 0))
            await scenario(port)
            await bench.server.close()

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(run())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


REQUESTS: list[tuple[p.Request, Right]] = [
    (add(1, 5), Right.LEDGER_WRITE),
    (add(1, 6, is_recovery=True), Right.LEDGER_WRITE),
    (p.WriteLacRequest(1, 1, 0, KEY, bytes(add(1, 0).body)), Right.LEDGER_WRITE),
    (p.ForceRequest(1, 1), Right.LEDGER_WRITE),
    (read(1, 0), Right.LEDGER_READ),
    (p.BatchReadRequest(1, 1, 0, 1, 1_000), Right.LEDGER_READ),
    (p.ReadLacRequest(1, 1), Right.LEDGER_READ),
    (p.FenceCheckRequest(1, 1, KEY), Right.LEDGER_WRITE),
    (p.InfoRequest(1, 3), Right.LEDGER_READ),
    (p.ListRequest(1, 1), Right.LEDGER_READ),
    (fence(2), Right.LEDGER_WRITE),
]


def test_no_kind_of_request_is_forgotten() -> None:
    assert {*RIGHTS, *OPEN_REQUESTS} == set(get_args(p.Request))
    assert not set(RIGHTS) & set(OPEN_REQUESTS)
    assert {type(request) for request, _ in REQUESTS} == set(RIGHTS) - {p.UnsupportedRequest}


@pytest.mark.parametrize("loop", LOOPS)
def test_every_role_does_at_a_bookie_what_the_table_says(world: World, loop: str) -> None:
    async def scenario(port: Port) -> None:
        writer = await world.talk(port, "replica")
        for number in (1, 2):
            assert (await writer.ask(add(number, 0))).status == OK
        for role in [*Role, "reader", "keys-only"]:
            name = role.value if isinstance(role, Role) else role
            for codec, kinds in ((v3, set(RIGHTS) - {p.BatchReadRequest}), (v2, _OF_V2)):
                requests = [one for one in REQUESTS if type(one[0]) in kinds]
                talk = await world.talk(port, name, codec)
                for request, right in requests:
                    is_allowed = role in ROLES_OF[right] or (role == "reader" and right is Right.LEDGER_READ)
                    answer = await talk.ask(request)
                    assert (answer.status != Status.EUA) is is_allowed, (name, request, answer)
                talk.writer.close()
        assert not port.bench.server.store.ledgers[1].is_fenced

    world.serve(scenario, loop=loop)


_OF_V2 = {p.AddRequest, p.ReadRequest, p.BatchReadRequest}


@pytest.mark.parametrize("codec", [v2, v3])
def test_a_readers_writes_among_its_reads_are_refused_one_by_one(world: World, codec) -> None:
    async def scenario(port: Port) -> None:
        writer = await world.talk(port, "replica")
        for n in range(3):
            assert (await writer.ask(add(1, n))).status == OK
        reader = await world.talk(port, "auditor", codec)
        asked = [read(1, 0), add(1, 3), read(1, 1), fence(1), add(9, 0), fence(10), read(1, 2), add(1, 4)]
        reader.writer.write(b"".join(map(codec.encode_request, asked)))
        statuses = [(await reader.receive()).status for _ in asked]
        assert sorted(statuses) == [OK] * 3 + [Status.EUA] * 5
        assert sorted(port.bench.server.store.ledgers) == [1]
        assert (await writer.ask(add(1, 3))).status == OK, "the writer goes on"

    world.serve(scenario)


async def log_in(talk: Talk, name: str) -> None:
    login, payload = ClientLogin(name, f"pass-of-{name}", "nonce-of-64-bits"), b""
    while payload is not None:
        response = await talk.ask(p.AuthRequest(0, PLUGIN, payload))
        payload = login.step(response.payload)


def test_a_user_is_the_principal_who_names_it(world: World) -> None:
    async def scenario(port: Port) -> None:
        answers = {}
        for name in ("replica", "auditor", "worker", "stranger", None):
            talk = await port.talk()
            if name is not None:
                await log_in(talk, name)
            answers[name] = [(await talk.ask(one)).status for one in (add(1, 0), read(1, 0))]
        denied = [Status.EUA, Status.EUA]
        assert answers == {
            "replica": [OK, OK], "auditor": [Status.EUA, OK], "worker": denied, "stranger": denied, None: denied
        }  # fmt: skip

    world.serve(scenario, by_login=True)


async def ended(talk: Talk) -> None:
    async with asyncio.timeout(60):
        assert await talk.receive() is None


def test_connections_of_who_is_gone_or_has_other_rights_end_and_the_others_go_on(world: World) -> None:
    async def scenario(port: Port) -> None:
        kept, gone, changed = [await world.talk(port, name) for name in ("replica", "operator", "client")]
        for number, talk in enumerate((kept, gone, changed), 1):
            assert (await talk.ask(add(number, 0))).status == OK
        text = world.file.read_text()
        text = text.replace('certificates=["operator"]', "")
        world.file.write_text(text.replace('ledgers = "write"', 'ledgers = "read"'))
        await asyncio.gather(ended(gone), ended(changed))
        again = await world.talk(port, "client")
        assert [(await again.ask(one)).status for one in (read(3, 0), add(3, 1))] == [OK, Status.EUA]
        world.file.write_text("rubbish [")
        await asyncio.sleep(1.5)
        assert (await kept.ask(add(1, 1))).status == OK, "a broken file changes nothing"
        assert (await (await world.talk(port, "replica")).ask(read(1, 0))).status == OK

    world.serve(scenario)


def test_a_connection_ends_by_time_when_its_principal_expires(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock(monkeypatch, ConnectionAdmission)
    mine = 'certificates=["operator"]'
    world.file.write_text(world.file.read_text().replace(mine, f"{mine}\nexpires={clock.in_an_hour}"))

    async def scenario(port: Port) -> None:
        kept, passing = [await world.talk(port, name) for name in ("replica", "operator")]
        assert (await passing.ask(add(1, 0))).status == OK
        clock.pass_that_hour()
        await ended(passing)
        assert (await kept.ask(read(1, 0))).status == OK

    world.serve(scenario)


def test_users_are_read_again_while_the_bookie_runs(world: World) -> None:
    async def scenario(port: Port) -> None:
        kept, gone = await port.talk(), await port.talk()
        await log_in(kept, "replica")
        await log_in(gone, "auditor")
        world.users.write_text("digest:replica:pass-of-replica\ndigest:operator:pass-of-operator\n")
        await ended(gone)
        late = await port.talk()
        await log_in(late, "operator")
        assert (await late.ask(add(1, 0))).status == OK
        world.users.write_text("rubbish")
        await asyncio.sleep(1.5)
        again = await port.talk()
        await log_in(again, "operator")
        assert (await kept.ask(add(2, 0))).status == OK

    world.serve(scenario, by_login=True)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_new_certificate_and_a_new_authority_count_for_the_next_connection(tmp_path: Path, loop: str) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    mine = {one.name: one.sign("mine") for one in (old, new)}

    def put(authority: Authority, name: str) -> None:
        pair = authority.sign(name)
        for source, path in ((pair["cert"], cert), (pair["key"], key), (authority.ca, ca)):
            Path(shutil.copy(source, f"{path}.new")).replace(path)

    async def is_served(port: Port, authority: Authority) -> bool:
        context = client_context(TlsSettings(**mine[authority.name], ca=authority.ca))
        try:
            return (await (await secured(port, context)).ask(add(1, 0))) is not None
        except OSError:
            return False

    put(old, "one")
    served = server_context(TlsSettings(cert=str(cert), key=str(key), ca=str(ca)))

    async def run() -> None:
        bench = Bench(SimDisk(random.Random(1)), tls=TlsPolicy(served, is_required=True))
        await bench.start()
        port = Port(bench, await bench.server.listen("127.0.0.1", 0))
        first = await secured(port, client_context(TlsSettings(**mine["old"], ca=old.ca)))
        put(new, "two")
        assert [await is_served(port, one) for one in (new, old)] == [True, False]
        assert (await first.ask(add(1, 1))).status == OK, "connections that there are go on"
        cert.write_text("rubbish")
        assert [await is_served(port, one) for one in (new, old)] == [True, False]
        put(old, "three")
        assert [await is_served(port, one) for one in (new, old)] == [False, True]
        await bench.server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


def test_a_client_shows_its_new_certificate_with_the_next_connection(world: World) -> None:
    shown = {name: world.folder / f"shown-{name}" for name in ("cert", "key")}

    def put(name: str) -> None:
        for what, path in shown.items():
            Path(shutil.copy(world.cert(name)[what], f"{path}.new")).replace(path)

    put("auditor")
    contexts = ClientContexts(TlsSettings(cert=str(shown["cert"]), key=str(shown["key"]), ca=world.authority.ca))

    async def scenario(port: Port) -> None:
        statuses = []
        for change in (None, lambda: put("replica"), lambda: shown["key"].write_text("rubbish")):
            if change is not None:
                change()
            talk = await secured(port, contexts.newest())
            statuses.append((await talk.ask(add(1, 0))).status)
        assert statuses == [Status.EUA, OK, OK], "files that cannot be used change nothing"

    world.serve(scenario)
