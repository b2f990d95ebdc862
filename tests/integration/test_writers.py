"""Writers on real replicas: batches are applied once, through killed leaders; operators see, forget and hand over."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.client.writer_client import WriterClient
from rsm_spark.core.records import WRITERS_LEVEL
from rsm_spark.core.writer_marks import DIGEST_BYTES, MarkedStatus, MarkKind, WriterMark, digest_after, digest_of
from rsm_spark.errors import InvalidCommandError, WriterRefusedError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map import MapClient
from rsm_spark.map.commands import RowWrite, WriteRows
from rsm_spark.map.messages import encode
from tests.integration.store_processes import StoreProcess

pytestmark = pytest.mark.asyncio

_CHUNKS = 30


def _rows(batch: int, number: int) -> bytes:
    return encode(WriteRows([RowWrite(b"%d/%d/%d" % (batch, number, row), b"v" * 100) for row in range(50)]))


def _chunk(batch: int, number: int, run: str = "r1", **changes: Any) -> WriterMark:
    payload = changes.pop("payload", None) or _rows(batch, number)
    named: dict[str, Any] = {
        "writer": "job",
        "checkpoint": "c",
        "run": run,
        "digest": digest_of(payload),
        "row_count": 50,
    } | changes
    return WriterMark(kind=MarkKind.CHUNK, batch=batch, chunk=number, payload=payload, **named)


def _end(batch: int, run: str = "r1", **changes: Any) -> WriterMark:
    named: dict[str, Any] = {"writer": "job", "checkpoint": "c", "run": run, "row_count": 50 * _CHUNKS} | changes
    return WriterMark(kind=MarkKind.END, batch=batch, parts=((0, _CHUNKS),), **named)


def _rsm(cluster: DevCluster, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "rsm_spark", *arguments, "--metadata-uri", cluster.metadata_uri, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


async def _keys(log: str, uri: str) -> dict[bytes, int]:
    async with await MapClient.connect(log, uri) as client:
        keys = [row.key async for row in client.scan(keys_only=True)]
        found = await asyncio.gather(*map(client.get, keys))
        return {key: value.version for key, value in zip(keys, found, strict=True) if value is not None}


async def test_a_batch_is_applied_once_though_leaders_are_killed_and_all_of_it_is_sent_twice(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    replicas = [StoreProcess(uri, unique_name, tmp_path, f"replica-{number}") for number in range(2)]
    try:
        async with await WriterClient.connect(unique_name, uri) as writer:
            for number in range(_CHUNKS):
                await writer.send(_chunk(0, number))
                if number == _CHUNKS // 2:
                    leader = next(one for one in replicas if one.address == writer._service.address)
                    leader.kill()
                    replicas.remove(leader)
                    replicas.append(StoreProcess(uri, unique_name, tmp_path, leader.replica_id))
        # Another process, other sessions, another run: the batch is run again from its beginning.
        async with await WriterClient.connect(unique_name, uri) as again:
            await asyncio.gather(*(again.send(_chunk(0, number, "r2")) for number in range(_CHUNKS)))
            await again.send(_end(0, "r2"))
            await again.send(_end(0, "r2"))
            with pytest.raises(WriterRefusedError, match="checkpoint 'other' counts other batches"):
                await again.send(_chunk(1, 0, "r3", checkpoint="other"))
            with pytest.raises(InvalidCommandError, match="a key has 1 to"):
                await again.send(_chunk(1, 0, "r2", payload=encode(WriteRows([RowWrite(b"", b"")]))))
        found = await _keys(unique_name, uri)
        assert len(found) == 50 * _CHUNKS
        assert set(found.values()) == {1}, "each key was written once"
        async with await LedgerClient.connect(uri) as client:
            chain, _ = await ChainStore(client.store, unique_name).read()
        assert chain.format_level == WRITERS_LEVEL, "the leader has raised it: every replica knows it"
    finally:
        for replica in replicas:
            replica.kill()


async def test_calls_are_made_once_though_their_leader_is_killed_and_all_are_sent_twice(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, count = cluster.metadata_uri, 4_000
    payloads = [encode(WriteRows([RowWrite(b"%d" % number, b"v")])) for number in range(count)]
    payloads[7] = encode(WriteRows([RowWrite(b"", b"")]))
    calls: list[WriterMark] = []
    digest = bytes(DIGEST_BYTES)
    for number, payload in enumerate(payloads):
        calls.append(_chunk(0, number, payload=payload, digest=digest, row_count=1, is_call=True))
        digest = digest_after(digest, payload)
    replicas = [StoreProcess(uri, unique_name, tmp_path, f"replica-{number}") for number in range(2)]
    try:
        async with await WriterClient.connect(unique_name, uri) as writer:
            first = await writer.send_calls(calls[:1000])
            leader = next(one for one in replicas if one.address == writer._service.address)
            rest = asyncio.create_task(writer.send_calls(calls[1000:]))
            await asyncio.sleep(0)
            leader.kill()
            replicas.remove(leader)
            replicas.append(StoreProcess(uri, unique_name, tmp_path, leader.replica_id))
            made = [*first, *await rest]
        assert [number for number, reply in enumerate(made) if reply.status is MarkedStatus.DECLINED] == [7]
        async with await WriterClient.connect(unique_name, uri) as again:
            run_again = [msgspec.structs.replace(call, run="r2") for call in calls]
            assert {reply.status for reply in await again.send_calls(run_again)} == {MarkedStatus.DONE}
            other = msgspec.structs.replace(run_again[-1], payload=payloads[0])
            with pytest.raises(WriterRefusedError, match="other calls were made before call"):
                await again.send_calls([other])
        found = await _keys(unique_name, uri)
        assert len(found) == count - 1
        assert set(found.values()) == {1}, "each key was written once"
    finally:
        for replica in replicas:
            replica.kill()


async def test_operators_list_show_forget_and_hand_over(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri = cluster.metadata_uri
    replica = StoreProcess(uri, unique_name, tmp_path, "replica-0")
    try:
        async with await WriterClient.connect(unique_name, uri) as writer:
            await writer.send(_chunk(4, 0))
            await writer.send(_chunk(2, 0, writer="other"))
        code, listed, _ = await asyncio.to_thread(_rsm, cluster, "log", "writer", "list", unique_name)
        assert code == 0
        assert [(one["name"], one["batch"], one["is_ended"]) for one in listed] == [
            ("job", 4, False),
            ("other", 2, False),
        ]
        _, (shown,), _ = await asyncio.to_thread(_rsm, cluster, "log", "writer", "show", unique_name, "job")
        assert shown["parts"] == [{"part": 0, "chunks": 1, "row_count": 50}]
        order = ("log", "writer", "take-over", unique_name, "job", "--checkpoint", "new")
        code, (handed,), _ = await asyncio.to_thread(_rsm, cluster, *order)
        assert (code, handed["writer"]["checkpoint"]) == (0, "c")
        code, _, errors = await asyncio.to_thread(_rsm, cluster, *order)
        assert code != 0
        assert "is checkpoint 'new''s already" in errors
        async with await WriterClient.connect(unique_name, uri) as writer:
            with pytest.raises(WriterRefusedError, match="counts other batches"):
                await writer.send(_chunk(4, 1))
            await writer.send(_chunk(0, 0, checkpoint="new", run="r9"))
        code, (gone,), _ = await asyncio.to_thread(_rsm, cluster, "log", "writer", "forget", unique_name, "job")
        assert (code, gone["writer"]["checkpoint"]) == (0, "new")
        _, listed, _ = await asyncio.to_thread(_rsm, cluster, "log", "writer", "list", unique_name)
        assert [one["name"] for one in listed] == ["other"]
        code, _, errors = await asyncio.to_thread(_rsm, cluster, "log", "writer", "forget", unique_name, "job")
        assert code != 0
        assert "there is no writer 'job'" in errors
    finally:
        replica.kill()
