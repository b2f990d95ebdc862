"""Attackers at the door of a file store, with a client that goes on: foreign paths, half bodies, untaken answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from ledger.dev import DevCluster
from tests.hostile.victim import Victim
from tests.integration.file_stores import SERVE, FileCaller, exception_of
from tests.integration.store_processes import StoreProcess, stores
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio

_SECRETS = {"ann": "a" * 40, "eve": "e" * 40, "root": "r" * 40, "looker": "l" * 40}
_CALLS = 40


def _principals(folder: Path) -> str:
    """Write who may do what: ann and eve have a directory each, looker only reads, root administers."""
    text = ""
    for name, more in (
        ("ann", 'role = "client"\naccess = "write"\nlogs = ["files"]\nprefix = "/ann"\n'),
        ("eve", 'role = "client"\naccess = "write"\nlogs = ["files"]\nprefix = "/an"\n'),
        ("looker", 'role = "auditor"\n'),
        ("root", 'role = "operator"\n'),
    ):
        token = hashlib.sha256(_SECRETS[name].encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{more}tokens = ["{token}"]\n'
    token = hashlib.sha256(("c" * 40).encode()).hexdigest()
    text += f'[[principal]]\nname = "replica"\nrole = "replica"\ntokens = ["{token}"]\n'
    file = folder / "principals.toml"
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


@contextlib.asynccontextmanager
async def _server(cluster: DevCluster, folder: Path, *options: str) -> AsyncIterator[StoreProcess]:
    token = folder / "token"
    token.write_text("c" * 40 + "\n")
    token.chmod(0o600)
    with stores(cluster.metadata_uri, "files", folder) as running:
        guarded = ("--principals", _principals(folder), "--token-file", str(token))
        yield running.start("a", "--http-port", "0", *guarded, *options, command=SERVE)


async def test_a_stranger_touches_no_path_of_another_and_no_name_stands_for_a_credential(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with _server(cluster, tmp_path) as server:
        address = server.ready["http_address"]
        async with (
            FileCaller(address, _SECRETS["ann"]) as ann,
            FileCaller(address, _SECRETS["eve"]) as eve,
            FileCaller(address, _SECRETS["looker"]) as looker,
            FileCaller(address) as nobody,
        ):
            assert (await ann.create("/ann/secret", b"hers", **{"user.name": "root"})).status_code == 201
            status = (await ann.ask("GET", "/ann/secret", "GETFILESTATUS")).json()["FileStatus"]
            assert status["owner"] == "ann", "user.name says nothing where credentials are asked for"
            assert (await eve.create("/an/f", b"eve's")).status_code == 201
            tried = [
                await eve.ask("GET", "/ann/secret", "OPEN"),
                await eve.ask("GET", "/ann/secret", "OPEN", **{"user.name": "ann"}),
                await eve.ask("GET", "/an/f", "OPEN", doas="ann"),
                await eve.ask("GET", "/ann", "LISTSTATUS"),
                await eve.ask("GET", "/", "LISTSTATUS"),
                await eve.ask("GET", "/", "GETCONTENTSUMMARY"),
                await eve.create("/ann/secret", b"forged", overwrite="true"),
                await eve.append("/ann/secret", b"more"),
                await eve.ask("PUT", "/ann/secret", "RENAME", destination="/an/mine"),
                await eve.ask("PUT", "/an/f", "RENAME", destination="/ann/secret", renameoptions="OVERWRITE"),
                await eve.ask("DELETE", "/ann", "DELETE", recursive="true"),
                await eve.ask("PUT", "/ann/secret", "SETPERMISSION", permission="777"),
                await eve.ask("PUT", "/an", "SETQUOTA", namespacequota="-1"),
                await looker.create("/ann/x", b""),
                await looker.ask("DELETE", "/an/f", "DELETE"),
            ]
            assert [(one.status_code, exception_of(one)) for one in tried] == [(403, "AccessControlException")] * len(
                tried
            )
            unknown = await nobody.ask("GET", "/ann/secret", "OPEN", **{"user.name": "ann"})
            assert (unknown.status_code, exception_of(unknown)) == (401, "SecurityException")
            foreign = await ann.http.request(
                "PUT", "/ann/x", params={"op": "MKDIRS"}, headers={"origin": "http://elsewhere.example"}
            )
            assert foreign.status_code == 403, "a page of another origin"
            assert await ann.read("/ann/secret") == b"hers"
            assert await looker.names("/ann") == ["secret"]
            door = f"http://{address}"
            assert (await eve.http.get(f"{door}/metrics")).status_code == 403
            assert (await looker.http.get(f"{door}/metrics")).status_code == 200
            assert (await nobody.http.get(f"{door}/healthz")).status_code == 200


async def test_the_door_has_the_replicas_certificate_and_says_nothing_in_plain_text(
    cluster: DevCluster, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("replica")
    tls = ("--tls-cert", signed["cert"], "--tls-key", signed["key"], "--tls-ca", authority.ca)
    async with _server(cluster, tmp_path, *tls) as server:
        address = server.ready["http_address"]
        verify = ssl.create_default_context(cafile=authority.ca)
        headers = {"authorization": f"Bearer {_SECRETS['ann']}"}
        async with httpx.AsyncClient(
            base_url=f"https://{address}/webhdfs/v1", verify=verify, headers=headers, timeout=60
        ) as ann:
            first = await ann.put("/ann/f", params={"op": "CREATE"})
            assert first.headers["location"].startswith(f"https://{address}/")
            assert (await ann.put(first.headers["location"], content=b"x" * 2_000_000)).status_code == 201
            assert (await ann.get("/ann/f", params={"op": "OPEN"})).content == b"x" * 2_000_000
        async with FileCaller(address, _SECRETS["ann"]) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.ask("GET", "/ann/f", "OPEN")


async def test_a_token_is_given_to_those_alone_who_have_it(cluster: DevCluster, tmp_path: Path) -> None:
    async with _server(cluster, tmp_path) as server, httpx.AsyncClient(timeout=60) as http:
        url = f"http://{server.ready['http_address']}/webhdfs/oauth2/token"

        async def ask(form: dict[str, str]) -> httpx.Response:
            return await http.post(url, data=form)

        ann = {"client_id": "ann", "client_secret": _SECRETS["ann"], "grant_type": "client_credentials"}
        given = await ask(ann)
        assert (given.status_code, given.json()["access_token"]) == (200, _SECRETS["ann"])
        assert given.headers["cache-control"] == "no-store"
        renewed = await ask({"refresh_token": _SECRETS["ann"], "grant_type": "refresh_token"})
        assert renewed.json()["token_type"] == "bearer"
        for wrong, status in (
            ({"client_secret": "x" * 40}, 401), ({"client_secret": ""}, 401), ({"client_secret": "ä" * 9}, 401),
            ({"client_secret": "a b\r\nc"}, 401), ({"client_id": "root"}, 401), ({"grant_type": "password"}, 400),
            ({"client_id": "a" * 20_000}, 413), ({str(number): "" for number in range(30)} | {"0": "x"}, 400),
        ):  # fmt: skip
            answer = await ask(ann | wrong)
            assert answer.status_code == status, (wrong, answer.text)
            assert _SECRETS["ann"] not in answer.text
        assert (await http.get(url)).status_code == 405
        assert (await http.post(url, content=b"\xff" * 10)).status_code == 400
        assert _SECRETS["ann"] not in server.errors()


@pytest.mark.parametrize("options", [(), ("--ledger-files",)], ids=["records", "ledgers"])
async def test_a_client_goes_on_beside_bodies_that_never_end_and_answers_that_nobody_takes(
    cluster: DevCluster, tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with _server(cluster, tmp_path, *options) as server:
        address = server.ready["http_address"]
        async with FileCaller(address, _SECRETS["ann"]) as ann, FileCaller(address, _SECRETS["eve"]) as eve:
            number, kind = 0, "ledgers" if options else "records"

            async def checkpoint() -> None:
                nonlocal number
                number += 1
                made = await ann.create(f"/ann/{kind}/.{number}", b"offsets" * 10)
                assert made.status_code == 201, made.text
                moved = await ann.ask(
                    "PUT", f"/ann/{kind}/.{number}", "RENAME", destination=f"/ann/{kind}/{number}", renameoptions="NONE"
                )
                assert moved.status_code == 200, moved.text

            victim = Victim(checkpoint, servers=[server.process.pid])
            quiet = await victim.run(_CALLS)
            assert (await eve.create("/an/large", b"x" * 4 * 1024 * 1024, overwrite="true")).status_code == 201
            async with _attack(address):
                attacked = await victim.run(_CALLS)
            attacked.assert_goes_on_like(quiet)


@contextlib.asynccontextmanager
async def _attack(address: str) -> AsyncIterator[None]:
    """Hold requests open whose bodies do not come, and long answers that nobody takes."""
    host, _, port = address.rpartition(":")
    head = f"Host: {address}\r\nAuthorization: Bearer {_SECRETS['eve']}\r\n"
    large = f"GET /webhdfs/v1/an/large?op=OPEN HTTP/1.1\r\n{head}\r\n".encode()
    half = f"PUT /webhdfs/v1/an/never?op=CREATE&data=true HTTP/1.1\r\n{head}Content-Length: 3000000\r\n\r\n".encode()
    held = []
    try:
        for number in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port), limit=1024)
                # Some come as far as an upload of which the rest never comes.
                sent = 2_200_000 if number % 20 == 0 else 100_000
                writer.write(large if number % 2 else half + b"x" * sent)
                held.append(writer)
        yield
    finally:
        for writer in held:
            writer.transport.abort()
