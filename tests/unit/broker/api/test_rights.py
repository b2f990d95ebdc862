"""Every (role, route) pair by real requests, and callers who show a certificate."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from broker.api.settings import HttpSettings
from ledger.errors import UsageError
from ledger.rights.principal import Role
from ledger.rights.table import ROLES_OF, Right
from tests.unit.broker.api.stand import Caller, serving
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of

READ, WRITE, ALL, GOVERN = Right.TASKS_READ, Right.TASKS_WRITE, Right.CLUSTER_READ, Right.GOVERN
LINES: dict[str, Right | None] = {
    "POST /api/v1/tasks": WRITE,
    "POST /api/v1/tasks/batch": WRITE,
    "GET /api/v1/tasks": READ,
    "GET /api/v1/tasks/{task_id}": READ,
    "GET /api/v1/tasks/{task_id}/payload": READ,
    "GET /api/v1/tasks/{task_id}/result": READ,
    "GET /api/v1/tasks/{task_id}/explain": READ,
    "PATCH /api/v1/tasks/{task_id}": WRITE,
    "POST /api/v1/tasks/{task_id}/cancel": WRITE,
    "POST /api/v1/tasks/cancel": WRITE,
    "POST /api/v1/dead-letters/replay": WRITE,
    "POST /api/v1/dead-letters/delete": WRITE,
    "POST /api/v1/transactions": WRITE,
    "GET /api/v1/transactions": READ,
    "POST /api/v1/transactions/{transaction}/commit": WRITE,
    "POST /api/v1/transactions/{transaction}/rollback": WRITE,
    "GET /api/v1/tenants": READ,
    "GET /api/v1/tenants/{tenant}": READ,
    "PUT /api/v1/tenants/{tenant}": GOVERN,
    "DELETE /api/v1/tenants/{tenant}": GOVERN,
    "GET /api/v1/workers": ALL,
    "DELETE /api/v1/workers/{worker_id}": GOVERN,
    "GET /api/v1/limits": READ,
    "PUT /api/v1/resources/{resource}": GOVERN,
    "DELETE /api/v1/resources/{resource}": GOVERN,
    "PUT /api/v1/holds": WRITE,
    "DELETE /api/v1/holds": WRITE,
    "GET /api/v1/slots": READ,
    "GET /api/v1/code": ALL,
    "GET /api/v1/code/{code}": ALL,
    "PUT /api/v1/code/{code}": GOVERN,
    "DELETE /api/v1/code/{code}": GOVERN,
    "GET /api/v1/events": READ,
    "GET /api/v1/overview": READ,
    "GET /metrics": ALL,
    "GET /api/v1/status": None,
    "GET /status": None,
    "GET /api/v1/openapi.json": None,
    "GET /healthz": None,
    "GET /readyz": None,
}
"""What each route needs; None = it is open, as are the pages of the dashboard."""


def _line(method: str, path: str) -> Right | None:
    if method == "GET" and (path == "/" or path.startswith("/static/")):
        return None
    return LINES[f"{method} {path}"]


@pytest.mark.asyncio
async def test_every_route_has_a_line_and_every_role_is_served_as_the_table_says(tmp_path: Path) -> None:
    async with serving(principals=principals(tmp_path)) as (server, _):
        seen = set()
        for route in server.edge.table.routes:
            right = _line(route.method, route.path)
            seen.add(f"{route.method} {route.path}")
            path = re.sub(r"\{[^}]*\}", "1", route.path)
            for role in [*Role, None]:
                if path == "/api/v1/events" and role in (Role.TENANT, Role.OPERATOR, Role.AUDITOR):
                    continue  # An answer without an end.
                asker = await Caller.of(server)
                token = "" if role is None else token_of(role.value)
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                status = (await asker.ask(route.method, path, headers=headers)).status
                asker.close()
                if right is None:
                    assert status not in (401, 403), (role, route.path)
                elif role is None:
                    assert status == 401, route.path
                else:
                    assert status != 401, (role, route.path)
                    assert (status == 403) is (role not in ROLES_OF[right]), (role, route.method, route.path, status)
        assert set(LINES) <= seen, "a line of a route that there is not"


@pytest.mark.asyncio
async def test_a_certificate_names_a_principal_where_no_token_is_sent(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    served = authority.sign("broker")
    file = principals(tmp_path, '[[principal]]\nname="ops"\nrole="operator"\ncertificates=["ops.example.org"]\n')
    async with serving(
        tls_cert=served["cert"], tls_key=served["key"], tls_client_ca=authority.ca, principals=file
    ) as (server, _):  # fmt: skip
        host, _, port = server.address.rpartition(":")
        for name, token, expected in (
            ("ops.example.org", "", b"200"),
            ("other.example.org", "", b"401"),
            ("ops.example.org", "nobody-s-token", b"401"),
            ("ops.example.org", token_of("tenant"), b"403"),
        ):
            cert = authority.sign(name, host=f"DNS:{name}")
            context = ssl.create_default_context(cafile=authority.ca)
            context.load_cert_chain(cert["cert"], cert["key"])
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            head = f"GET /api/v1/workers HTTP/1.1\r\nHost: {server.address}\r\n"
            head += f"Authorization: Bearer {token}\r\n" if token else ""
            writer.write(f"{head}\r\n".encode())
            assert (await reader.readline()).split()[1] == expected, (name, token)
            writer.close()


def test_there_is_one_file_that_says_who_may() -> None:
    with pytest.raises(UsageError, match="give one"):
        HttpSettings(tokens_file="tokens.toml", principals="principals.toml")


def _serial(address: str, ca: str) -> str:
    """Return the number of the certificate that is served; HTTP is agreed on, whichever it is."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        assert tls.selected_alpn_protocol() == "http/1.1"
        return str((tls.getpeercert() or {})["serialNumber"])


@pytest.mark.asyncio
async def test_a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(name: str) -> None:
        pair = authority.sign(name)
        for source, path in ((pair["cert"], cert), (pair["key"], key)):
            Path(shutil.copy(source, f"{path}.new")).replace(path)

    put("one")
    async with serving(tls_cert=str(cert), tls_key=str(key)) as (server, _):
        before = await asyncio.to_thread(_serial, server.address, authority.ca)
        put("two")
        after = await asyncio.to_thread(_serial, server.address, authority.ca)
        assert after != before
        key.write_text("rubbish")
        assert await asyncio.to_thread(_serial, server.address, authority.ca) == after
