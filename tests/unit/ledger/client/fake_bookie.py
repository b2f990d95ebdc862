"""A bookie that does what a test tells it, on the simulated network; it answers in the protocol it is asked in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ledger.client.answers import AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.testing import Simulation
from ledger.wire import v2, v3
from ledger.wire.codes import V2_PROTOCOL_VERSION, Status
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import (
    AddRequest,
    AddResponse,
    ReadLacRequest,
    ReadLacResponse,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)

SETTINGS = ClientSettings(request_timeout_s=2.0, quorum_timeout_s=6.0, in_flight_bytes_max=1000)
Answer = Callable[["FakeBookie", "Session", list[Request]], None]


class FakeBookie:
    """Listens and hands every wake-up's requests to `answer`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.received: list[Request] = []
        self.wake_ups: list[int] = []
        self.sessions: list[Session] = []

    async def listen(self) -> asyncio.AbstractServer:
        return await asyncio.get_running_loop().create_server(lambda: Session(self), "0.0.0.0", 3181)


class Session(asyncio.BufferedProtocol):
    def __init__(self, bookie: FakeBookie) -> None:
        self.bookie = bookie
        self.frames = FrameBuffer()
        self.is_v2 = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.bookie.sessions.append(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        packets = self.frames.take(nbytes)
        requests = [v2.decode_request(x) if _is_v2(x) else v3.decode_request(x) for x in packets]
        self.is_v2 = self.is_v2 or any(map(_is_v2, packets))
        self.bookie.received += requests
        self.bookie.wake_ups.append(len(requests))
        self.bookie.answer(self.bookie, self, requests)

    def answer(self, response: Response) -> None:
        self.send(v2.encode_response(response) if self.is_v2 else v3.encode_response(response))

    def send(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


def silent(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
    pass


def store(bookie: FakeBookie, session: Session, requests: list[Request], status: Status = Status.EOK) -> None:
    for request in requests:
        if isinstance(request, AddRequest):
            session.answer(AddResponse(request.txn_id, status, request.ledger_id, request.entry_id))
        elif isinstance(request, ReadLacRequest):
            session.answer(ReadLacResponse(request.txn_id, status, request.ledger_id))
        elif isinstance(request, WriteLacRequest):
            session.answer(WriteLacResponse(request.txn_id, status, request.ledger_id))


def run(
    scenario: Callable[[ConnectionPool, list[FakeBookie]], Awaitable[None]],
    *answers: Answer,
    seed: int = 1,
    settings: ClientSettings = SETTINGS,
) -> Simulation:
    """Run a scenario on a host "client", with one fake bookie per answer: "b0:3181", "b1:3181", …"""
    simulation = Simulation(seed)
    bookies = [FakeBookie(answer) for answer in answers]

    async def serve(bookie: FakeBookie) -> None:
        await bookie.listen()
        await asyncio.sleep(3600)

    async def program() -> None:
        async def resolve(bookie_id: str) -> tuple[str, int]:
            host, _, port = bookie_id.partition(":")
            return host, int(port)

        pool = ConnectionPool(resolve, random.Random(seed), settings)
        await asyncio.sleep(1)
        await scenario(pool, bookies)
        await pool.close()

    async def main() -> None:
        for number, bookie in enumerate(bookies):
            simulation.host(f"b{number}").spawn(serve(bookie))
        await simulation.host("client").spawn(program())

    simulation.run(main())
    return simulation


def ask(pool: ConnectionPool, answers: AnswerQueue, bookie_id: str = "b0:3181") -> None:
    pool.ask(bookie_id, ReadLacRequest(pool.take_txns(1), 7), (answers, "token"))


def writer_of(pool: ConnectionPool, count: int, quorum: QuorumConfig | None = None) -> WriteHandle:
    metadata = LedgerMetadata(
        quorum=quorum or QuorumConfig(count, count, count),
        state=LedgerState.OPEN,
        segments=(Segment(0, tuple(f"b{number}:3181" for number in range(count))),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )

    async def close(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
        return LedgerMetadata(
            metadata.quorum, LedgerState.CLOSED, metadata.segments, metadata.digest_type, b"", last_entry_id, length
        )

    return WriteHandle(7, metadata, pool, random.Random(1), close)


def _is_v2(packet: bytes | memoryview) -> bool:
    """Whether a packet begins with version 2; in v3 the first byte is the tag of a protobuf field."""
    return packet[0] == V2_PROTOCOL_VERSION
