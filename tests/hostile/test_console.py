"""Attackers at a console, beside an operator who goes on looking: strangers, slow readers, floods of streams."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ledger.dev import DevCluster
from tests.hostile.victim import Victim
from tests.integration.consoles import ConsoleProcess, console
from tests.integration.gateways import asking

pytestmark = pytest.mark.asyncio

SECRETS = {"root": "r" * 40, "eve": "e" * 40, "till": "c" * 40, "acme": "t" * 40}
_ROLES = {
    "root": 'role = "operator"',
    "eve": 'role = "auditor"',
    "till": 'role = "client"\nledgers = "write"',
    "acme": 'role = "auditor"\ntenant = "acme"',
}
_INTO = tuple(f"/api/v1/logs/orders/{part}" for part in ("records", "map", "sql?sql=SELECT%201"))
_PATHS = ("/api/v1/view", "/api/v1/history", "/api/v1/logs/orders", "/metrics", *_INTO)
_OF_TASKS = ("/api/v1/brokers", "/api/v1/events", "/api/v1/brokers/errands/tasks", "/api/v1/brokers/errands/tasks/1")
_ACTS = tuple(
    f"/api/v1/brokers/errands/{act}" for act in ("tasks/cancel", "dead-letters/replay", "dead-letters/delete")
)
_WRONG: tuple[dict[str, object], ...] = (
    {}, {"task_ids": []}, {"task_ids": [0]}, {"task_ids": ["x"]}, {"task_ids": [1], "all": 1},
)  # fmt: skip
_CALLS = 40


@contextlib.contextmanager
def _guarded(cluster: DevCluster, folder: Path) -> Iterator[ConsoleProcess]:
    text = ""
    for name, secret in SECRETS.items():
        token = hashlib.sha256(secret.encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{_ROLES[name]}\ntokens = ["{token}"]\n'
    file = folder / "principals.toml"
    file.write_text(text)
    audit = folder / "audit.jsonl"
    with console(cluster.metadata_uri, "--principals", str(file), "--audit-file", str(audit)) as one:
        yield one


async def test_who_has_no_right_to_the_whole_cluster_sees_nothing(own_cluster: DevCluster, tmp_path: Path) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        async with asking(one.url) as nobody, asking(one.url, "x" * 40) as stranger:
            for path in (*_PATHS, *_OF_TASKS, "/status", "/api/v1/me"):
                assert (await nobody.get(path)).status_code == 401
                assert (await stranger.get(path)).status_code == 401
            for path in _ACTS:
                assert (await stranger.post(path, json={"task_ids": [1]})).status_code == 401
            assert (await nobody.get("/healthz")).text == "ok\n"
        for name in ("till", "acme"):
            async with asking(one.url, SECRETS[name]) as refused:
                answers = [(await refused.get(path)).status_code for path in _PATHS]
                assert answers == [403] * len(_PATHS), name
                acts = [(await refused.post(path, json={"task_ids": [1]})).status_code for path in _ACTS]
                assert acts == [403] * len(_ACTS), name
        async with asking(one.url, SECRETS["till"]) as till, asking(one.url, SECRETS["acme"]) as acme:
            assert [(await till.get(path)).status_code for path in _OF_TASKS] == [403] * len(_OF_TASKS)
            assert (await acme.get("/api/v1/brokers")).json() == {"logs": []}
            assert (await acme.get("/api/v1/me")).json() == {
                "name": "acme", "role": "auditor", "tenant": "acme",
                "sees_cluster": False, "sees_logs": False, "sees_tasks": True, "may_change_tasks": False,
            }  # fmt: skip
        refusals = (tmp_path / "audit.jsonl").read_text()
        assert "not-allowed" in refusals
        assert not any(secret in refusals for secret in SECRETS.values())


async def test_what_is_no_question_is_refused_in_words_and_changes_nothing(
    own_cluster: DevCluster, tmp_path: Path
) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        async with asking(one.url, SECRETS["eve"]) as eve:
            for method, path, status in (
                ("POST", "/api/v1/view", 405), ("DELETE", "/api/v1/logs/orders", 405), ("PUT", "/static/app.js", 405),
                ("GET", "/api/v1/logs/no-such-log", 404), ("GET", "/api/v1/logs/a%2Fb", 404),
                ("GET", "/api/v1/logs/%FF", 400), ("GET", "/api/v1/logs/..%2F..%2Fledgers", 404),
                ("GET", "/api/v1/history?since_ms=-1", 400), ("GET", "/api/v1/history?since_ms=x", 400),
                ("GET", "/api/v1/events?since=1&since=2", 400), ("GET", "/api/v1/view?x=1", 400),
                ("HEAD", "/api/v1/events", 405), ("GET", "/static/../settings.py", 404),
                ("GET", "/static/%2e%2e/x", 404), ("GET", "/api/v1/logs/no-such-log/records", 404),
                ("GET", "/api/v1/logs/x/records?limit=1000", 400),
                ("GET", "/api/v1/logs/x/records?from_revision=-1", 400),
                ("GET", "/api/v1/logs/x/map?prefix=0xzz", 400), ("GET", "/api/v1/logs/x/sql", 400),
                ("GET", f"/api/v1/logs/x/sql?sql={'x' * 5_000}", 400), ("GET", "/api/v1/logs/..%2F../records", 404),
                ("GET", "/api/v1/logs/.%00/map", 400),
            ):  # fmt: skip
                answer = await eve.request(method, path)
                assert answer.status_code == status, (method, path, answer.text)
            with_body = await eve.request("GET", "/api/v1/view", content=b"x" * 100_000)
            assert with_body.status_code == 413
            foreign = await eve.get("/api/v1/view", headers={"host": "evil.example"})
            assert foreign.status_code in (400, 421)
            page = await eve.get("/api/v1/view", headers={"origin": "https://evil.example"})
            assert page.status_code == 403
            assert (await eve.get("/api/v1/view")).status_code == 200


async def test_another_sites_page_can_have_nothing_done(own_cluster: DevCluster, tmp_path: Path) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        async with asking(one.url, SECRETS["root"]) as root:
            for path in _ACTS:
                body = {"task_ids": [1]}
                assert (await root.post(path, json=body)).status_code == 404, "there is no such broker"
                foreign = await root.post(path, json=body, headers={"origin": "https://evil.example"})
                assert foreign.status_code == 403
                for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                    form = await root.post(path, content=b'{"task_ids": [1]}', headers={"content-type": kind})
                    assert form.status_code == 415, kind
                for wrong in _WRONG:
                    assert (await root.post(path, json=wrong)).status_code == 400, wrong
                assert (await root.post(path, json={"task_ids": list(range(1, 502))})).status_code == 400
                assert (await root.post(path, content=b"[" * 70_000, headers={
                    "content-type": "application/json"
                })).status_code == 413  # fmt: skip
                assert (await root.get(path)).status_code == 405
            assert (await root.get("/api/v1/view")).status_code == 200


@contextlib.asynccontextmanager
async def _attack(url: str) -> AsyncIterator[None]:
    """Hold streams open that nobody reads, heads that never end, and ask for details again and again."""
    parts = urlsplit(url)
    head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {SECRETS['eve']}\r\n"
    stream = f"GET /api/v1/events?since=1 HTTP/1.1\r\n{head}\r\n".encode()
    half = f"GET /api/v1/view HTTP/1.1\r\n{head}X-Half: ".encode()
    held: list[asyncio.StreamWriter] = []

    async def details() -> None:
        async with asking(url, SECRETS["eve"]) as eve:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    await eve.get("/api/v1/logs/no-such-log")

    asking_on = [asyncio.create_task(details()) for _ in range(4)]
    try:
        for number in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
                writer.write(stream if number % 2 else half)
                held.append(writer)
        yield
    finally:
        for task in asking_on:
            task.cancel()
        await asyncio.gather(*asking_on, return_exceptions=True)
        for writer in held:
            writer.transport.abort()


async def test_an_operator_goes_on_looking_beside_streams_that_nobody_reads(
    own_cluster: DevCluster, tmp_path: Path
) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        async with asking(one.url, SECRETS["root"]) as root:

            async def look() -> None:
                answer = await root.get("/api/v1/view")
                assert answer.status_code == 200
                assert len(answer.json()["bookies"]) == 3

            await look()
            victim = Victim(look, servers=[one.pid])
            quiet = await victim.run(_CALLS)
            async with _attack(one.url):
                attacked = await victim.run(_CALLS)
                async with root.stream("GET", "/api/v1/events?since=1") as told:
                    assert told.status_code == 200, "the streams of one token leave room for others"
                    async for line in told.aiter_lines():
                        if line.startswith("event: "):
                            break
            attacked.assert_goes_on_like(quiet)


async def test_a_caller_looks_into_few_logs_at_once_and_each_look_is_told_under_its_name(
    own_cluster: DevCluster, tmp_path: Path
) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        async with asking(one.url, SECRETS["eve"]) as eve, asking(one.url, SECRETS["root"]) as root:
            # There is no such log, so that nobody leads it: the client looks for a leader until its time is over.
            path = "/api/v1/logs/nobodys/map"
            held = [asyncio.create_task(eve.get(path)) for _ in range(8)]
            answers = [(await task).status_code for task in held]
            assert answers.count(429) == 6, answers
            assert (await root.get("/api/v1/logs/no-such-log/records")).status_code == 404
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        told = {(line["principal"], line["action"], line["target"], line["outcome"]) for line in lines}
        assert ("root", "GET /api/v1/logs/{log}/records", "log no-such-log", "404") in told
        assert ("eve", "GET /api/v1/logs/{log}/map", "log nobodys", "429") in told


async def test_a_token_that_is_taken_back_ends_its_stream(own_cluster: DevCluster, tmp_path: Path) -> None:
    with _guarded(own_cluster, tmp_path) as one:
        file = tmp_path / "principals.toml"
        async with asking(one.url, SECRETS["eve"]) as eve, eve.stream("GET", "/api/v1/events?since=1") as told:
            assert told.status_code == 200
            text = file.read_text()
            before, eves, after = text.partition('[[principal]]\nname = "eve"')
            file.write_text(before + after[after.index("[[principal]]") :] if eves else text)
            async with asyncio.timeout(60):
                async for _ in told.aiter_lines():
                    pass
        async with asking(one.url, SECRETS["eve"]) as eve:
            assert (await eve.get("/api/v1/view")).status_code == 401
