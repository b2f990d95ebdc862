"""Sockets that begin frames and never end them, against bookies with a writer beside."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ledger import ClientSettings, DigestType, LedgerClient
from ledger.wire.frames import FRAME_BYTES_MAX
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.bookie_process import Bookie

PAYLOAD = bytes(300_000)
CALLS, PIECES = 60, 3_000


class HalfFrames:
    """Sockets that hold frames without their last byte, and come again when they are cut; one thread for all.

    Attributes:
        work: Counts the pieces of 128 KiB, or less, that the bookies took.
        cut_count: How often one of them was cut.

    """

    def __init__(self, ports: list[int], *, socket_count: int, frame_bytes: int) -> None:
        self.work = Work()
        self.cut_count = 0
        self._ports, self._socket_count = ports, socket_count
        self._frame = struct.pack(">I", frame_bytes) + b"\x0a" + bytes(frame_bytes - 2)
        self._stopped = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[HalfFrames]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        sockets = {n: self._connect(n) for n in range(self._socket_count)}
        sent = dict.fromkeys(sockets, 0)
        while not self._stopped.is_set():
            for number, one in sockets.items():
                try:
                    with contextlib.suppress(BlockingIOError):
                        count = one.send(memoryview(self._frame)[sent[number] : sent[number] + (128 << 10)])
                        sent[number] += count
                        self.work.add()
                    with contextlib.suppress(BlockingIOError):
                        if not one.recv(100):
                            raise ConnectionResetError
                except OSError:
                    self.cut_count += 1
                    one.close()
                    sockets[number], sent[number] = self._connect(number), 0
                time.sleep(0.0005)  # A slow and steady enemy: what is tested is not the machine's speed.
        for one in sockets.values():
            one.close()

    def _connect(self, number: int) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self._ports[number % len(self._ports)]), timeout=60)
        one.setblocking(False)
        return one


async def _write_beside(client: LedgerClient, attack: HalfFrames, pids: list[int], **quorum: Any) -> None:
    writer = await client.create(digest_type=DigestType.CRC32C, **quorum)
    victim = Victim(lambda: writer.append(PAYLOAD), servers=pids)
    quiet = await victim.run(CALLS)
    with attack.running():
        attacked = await victim.run(CALLS, beside=attack.work, units=PIECES)
        memory_mib = [resident_mib(pid) for pid in pids]
    last_entry_id = await writer.close()
    attacked.assert_goes_on_like(quiet, units_per_call=200)
    assert last_entry_id + 1 == quiet.calls + attacked.calls
    metadata, _ = await client.ledgers.read(writer.ledger_id)
    assert len(metadata.segments) == 1, "a bookie gave up its place"
    assert attack.cut_count, "nobody was cut: the attack did not reach its limit"
    assert max(memory_mib) < 700


def test_a_writer_goes_on_beside_120_half_frames_on_two_of_three_bookies(cluster) -> None:
    bookies = cluster.state.bookies[:2]
    ports = [bookie.port for bookie in bookies]
    pids = [cluster.pids()[bookie.name] for bookie in bookies]
    attack = HalfFrames(ports, socket_count=120, frame_bytes=FRAME_BYTES_MAX)

    async def scenario() -> None:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            await _write_beside(client, attack, pids, ensemble_size=3, write_quorum=3, ack_quorum=2)

    asyncio.run(scenario())


@pytest.mark.parametrize("frame_bytes", [60_000, FRAME_BYTES_MAX])
def test_a_writer_that_logged_in_goes_on_beside_strangers(
    zookeeper, tmp_path, unique_name, monkeypatch, frame_bytes: int
) -> None:
    users = tmp_path / "users"
    users.write_text("digest:hd:testpwd\n")
    users.chmod(0o600)
    monkeypatch.setenv("RSM_CLIENT__AUTH_FILE", str(users))
    bookie = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}", options=())
    bookie.start("--auth-file", str(users))
    attack = HalfFrames([bookie.port], socket_count=120, frame_bytes=frame_bytes)

    async def scenario() -> None:
        async with await LedgerClient.connect(bookie.uri, settings=ClientSettings.from_environment()) as client:
            pids = [bookie.process.pid]
            await _write_beside(client, attack, pids, ensemble_size=1, write_quorum=1, ack_quorum=1)

    try:
        asyncio.run(scenario())
    finally:
        bookie.kill()
