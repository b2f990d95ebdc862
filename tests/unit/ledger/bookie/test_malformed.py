"""What no client should send, over a real socket: an error answer or a closed connection, and the bookie goes on."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.codes import OperationType, Status
from ledger.wire.entry import seal, seal_lac
from ledger.wire.frames import FRAME_BYTES_MAX
from ledger.wire.proto import bookkeeper_pb2 as pb
from tests.unit.ledger.bookie.bookie_bench import DIGEST, KEY, OK, add, fence, read
from tests.unit.ledger.bookie.bookie_port import serving

MAX_ID = (1 << 63) - 1


def at_port(scenario: Callable) -> Callable:
    def test(caplog) -> None:
        async def run() -> None:
            async with serving() as port:
                await scenario(port)
                await port.check()

        asyncio.run(run())
        assert not [x for x in caplog.records if x.exc_info or x.levelno >= logging.CRITICAL]

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@at_port
async def test_a_length_of_no_frame_closes_the_connection(port) -> None:
    for length in (0, FRAME_BYTES_MAX + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1):
        talk = await port.talk()
        assert await talk.say(struct.pack(">I", length) + b"\x0a" * 8) is None
        talk.writer.close()


@at_port
async def test_a_packet_too_short_for_anything_closes_the_connection(port) -> None:
    for first in (b"\x0a", b"\x02"):
        for length in (1, 3, 4, 5):
            talk = await port.talk()
            assert await talk.say(struct.pack(">I", length) + first * length) is None
            talk.writer.close()


@pytest.mark.parametrize("codec", [v2, v3])
def test_frames_cut_at_every_byte_are_understood(codec) -> None:
    async def run() -> None:
        async with serving() as port:
            talk = await port.talk(codec)
            frames = codec.encode_request(add(1, 0)) + codec.encode_request(read(1, 0))
            for cut in range(1, len(frames)):
                talk.writer.write(frames[:cut])
                await asyncio.sleep(0)
                talk.writer.write(frames[cut:])
                assert [(await talk.receive()).status for _ in range(2)] == [OK, OK]
            await port.check()

    asyncio.run(run())


@at_port
async def test_a_connection_lost_at_every_byte_of_a_frame_leaves_nothing(port) -> None:
    frame = v2.encode_request(add(1, 0))
    for cut in range(1, len(frame)):
        talk = await port.talk(v2)
        talk.writer.write(frame[:cut])
        talk.writer.close()
    async with asyncio.timeout(60):
        while len(port.bench.server._connections) > 1:  # one is the bench's own
            await asyncio.sleep(0.001)
    assert port.bench.server.frames.held_bytes == 0
    assert (await (await port.talk()).ask(read(1, 0))).status == Status.ENOLEDGER


@at_port
async def test_a_protocol_of_another_age_closes_the_connection(port) -> None:
    for first in (0, 3, 0x08, 0x16, 0x47, 0xFF):  # among them TLS and HTTP
        talk = await port.talk()
        assert await talk.say(struct.pack(">I", 60) + bytes([first]) * 60) is None
        talk.writer.close()


@at_port
async def test_a_request_of_another_version_is_answered_and_the_connection_goes_on(port) -> None:
    message = pb.Request()
    header: Any = message.header
    header.version, header.operation, header.txnId = 2, 1, 9
    message.readRequest.ledgerId, message.readRequest.entryId = 1, 0
    talk = await port.talk()
    answer = await talk.say(framed(message.SerializeToString()))
    assert (answer.txn_id, answer.status) == (9, Status.EBADVERSION)
    assert (await talk.ask(add(1, 0))).status == OK

    talk = await port.talk(v2)
    raw = bytearray(v2.encode_request(add(2, 0)))
    raw[4] = 3  # the version
    talk.writer.write(raw)
    length = int.from_bytes(await talk.reader.readexactly(4), "big")
    assert (await talk.reader.readexactly(length))[:8] == b"\3\1\0\0\0\0\0\x67"
    assert (await talk.ask(read(2, 0))).status == Status.ENOLEDGER
    assert (await talk.ask(add(2, 0))).status == OK


def framed(packet: bytes) -> bytes:
    return struct.pack(">I", len(packet)) + packet


@at_port
async def test_an_operation_without_a_body_is_answered(port) -> None:
    talk = await port.talk()
    for operation in OperationType:
        answer = await talk.ask(p.UnsupportedRequest(7, operation))
        assert (answer.txn_id, answer.status) == (7, Status.EBADREQ)


@at_port
async def test_an_operation_that_nobody_knows_is_refused_or_closes_the_connection(port) -> None:
    talk = await port.talk()
    answer = await talk.say(framed(b"\x0a\x06\x08\x03\x10\x63\x18\x01"))
    assert answer is None or answer.status == Status.EBADREQ
    assert await (await port.talk()).say(framed(b"\x02\x63\0\0" + bytes(60))) is None


@at_port
async def test_a_connection_speaks_one_protocol(port) -> None:
    for first, second in ((v2, v3), (v3, v2)):
        talk = await port.talk(first)
        assert (await talk.ask(add(1, 0))).status == OK
        assert await talk.say(second.encode_request(read(1, 0))) is None
        talk.writer.close()


@at_port
async def test_unknown_and_repeated_fields_are_read_as_protobuf_reads_them(port) -> None:
    talk = await port.talk()
    assert (await talk.ask(add(1, 0))).status == OK
    packet = v3.encode_request(read(1, 0, txn=5))[4:]
    answer = await talk.say(framed(packet + b"\xf2\x7f\x03abc" + packet))
    assert (answer.txn_id, answer.status) == (5, OK)


@at_port
async def test_deep_nesting_ends_the_connection_or_is_skipped(port) -> None:
    talk = await port.talk()
    nested = b""
    for _ in range(1000):
        nested = b"\xc2\x0c" + v3_varint(len(nested)) + nested
    answer = await talk.say(framed(v3.encode_request(read(9, 0, txn=5))[4:] + nested))
    assert answer is None or answer.txn_id == 5
    groups = b"\x0b" * 1000  # groups that are begun and never ended
    assert await (await port.talk()).say(framed(v3.encode_request(read(9, 0))[4:] + groups)) is None


def v3_varint(number: int) -> bytes:
    more, rest = divmod(number, 128)
    return bytes([rest | 128]) + v3_varint(more) if more else bytes([rest])


@at_port
async def test_text_that_is_no_text_closes_the_connection_or_is_answered(port) -> None:
    talk = await port.talk()
    packet = b"\x0a\x06\x08\x03\x10\x05\x18\x01" + b"\xb2\x06\x07\x0a\x03\xff\xfe\xfd\x12\x00"
    answer = await talk.say(framed(packet))
    assert answer is None or answer.txn_id == 1


@at_port
async def test_ids_at_the_ends_of_their_range_are_served_or_refused(port) -> None:
    talk = await port.talk()
    for ledger_id, entry_id in ((0, 0), (MAX_ID, 0), (3, MAX_ID - 1), (MAX_ID, MAX_ID)):
        assert (await talk.ask(add(ledger_id, entry_id))).status == OK
        assert bytes((await talk.ask(read(ledger_id, entry_id))).body) == add(ledger_id, entry_id).body
    body = seal(-1, 0, -1, 0, b"x", DIGEST)
    assert (await talk.ask(p.AddRequest(1, -1, 0, KEY, body))).status == Status.EBADREQ
    assert (await talk.ask(p.AddRequest(1, 1, -1, KEY, seal(1, -1, -1, 0, b"x", DIGEST)))).status == Status.EBADREQ
    assert (await talk.ask(read(-1, 0))).status == Status.ENOLEDGER
    assert (await talk.ask(read(0, -2))).status == Status.ENOENTRY
    assert (await talk.ask(read(0, -(1 << 63)))).status == Status.ENOENTRY
    assert (await talk.ask(fence(-1))).status == Status.EBADREQ
    assert (await talk.ask(p.ForceRequest(1, -1))).status == Status.ENOLEDGER
    assert (await talk.ask(p.ListRequest(1, -5))).status == Status.ENOLEDGER
    assert (await talk.ask(p.ReadLacRequest(1, -1))).status == Status.ENOENTRY
    assert await (await port.talk(v2)).ask(p.AddRequest(0, -1, 0, KEY, body)) is None
    assert await (await port.talk(v2)).ask(p.AddRequest(0, 1, -1, KEY, seal(1, -1, -1, 0, b"x", DIGEST))) is None


@at_port
async def test_a_lac_that_makes_no_sense_is_a_hint_like_any_other(port) -> None:
    """The digest protects it, a bookie cannot check it: as with BookKeeper, the highest ever named is passed on."""
    talk = await port.talk()
    for entry_id, lac in ((0, -1), (1, 900), (2, -(1 << 63)), (3, 5)):
        assert (await talk.ask(add(1, entry_id, lac=lac))).status == OK
    assert (await talk.ask(read(1, 3))).max_lac == 900


@at_port
async def test_an_explicit_lac_that_is_no_explicit_lac_is_refused(port) -> None:
    talk = await port.talk()
    good = seal_lac(1, 5, DIGEST)
    for body in (b"", good[:15], good + bytes(1 << 20), seal_lac(2, 5, DIGEST), seal_lac(1, 6, DIGEST)):
        assert (await talk.ask(p.WriteLacRequest(1, 1, 5, KEY, body))).status == Status.EBADREQ
    assert (await talk.ask(p.WriteLacRequest(1, 1, 5, KEY[:19], good))).status == Status.EBADREQ
    assert (await talk.ask(p.WriteLacRequest(1, 1, 5, KEY, good))).status == OK


@at_port
async def test_a_master_key_of_another_length_is_refused(port) -> None:
    talk = await port.talk()
    for key in (b"", KEY[:19], KEY + b"x", bytes(1 << 20)):
        message = pb.Request()
        header: Any = message.header
        header.version, header.operation, header.txnId = 3, 2, 1
        message.addRequest.ledgerId, message.addRequest.entryId = 1, 0
        message.addRequest.masterKey, message.addRequest.body = key, bytes(add(1, 0).body)
        assert (await talk.say(framed(message.SerializeToString()))).status == Status.EBADREQ
        assert (await talk.ask(fence(1, key=key))).status == Status.EUA
    assert (await talk.ask(read(1, 0))).status == Status.ENOLEDGER


@pytest.mark.parametrize("codec", [v2, v3])
def test_an_entry_too_long_to_be_read_back_is_refused(codec, caplog) -> None:
    async def run() -> None:
        async with serving(file_bytes=1 << 24) as port:
            talk = await port.talk(codec)
            for payload_bytes, expected in ((FRAME_BYTES_MAX - 300, OK), (FRAME_BYTES_MAX - 130, Status.EBADREQ)):
                assert (await talk.ask(add(1, payload_bytes, size=payload_bytes))).status == expected
            found = await talk.ask(read(1, FRAME_BYTES_MAX - 300))
            assert len(found.body) == FRAME_BYTES_MAX - 300 + 36
            await port.check()

    asyncio.run(run())


@pytest.mark.parametrize("codec", [v2, v3])
def test_an_entry_is_never_changed(codec) -> None:
    async def run() -> None:
        async with serving() as port:
            talk = await port.talk(codec)
            await talk.ask(add(1, 0, size=60))
            await talk.ask(add(1, 1, size=60))
            other = p.AddRequest(0, 1, 0, KEY, seal(1, 0, -1, 0, b"\1" * 60, DIGEST), is_recovery=True)
            shorter = p.AddRequest(0, 1, 0, KEY, seal(1, 0, -1, 0, bytes(59), DIGEST))
            later = p.AddRequest(0, 1, 0, KEY, seal(1, 0, 7, 0, bytes(60), DIGEST), is_recovery=True)
            for _ in range(2):
                assert (await talk.ask(other)).status == Status.EBADREQ
                assert (await talk.ask(shorter)).status == Status.EBADREQ
                assert (await talk.ask(add(1, 0, size=60))).status == OK, "the same bytes again"
                await port.bench.server.close()
                await port.bench.start()  # Now they are in a segment.
                port.port = await port.bench.server.listen("127.0.0.1", 0)
                talk = await port.talk(codec)
            assert (await talk.ask(later)).status == OK, "the same payload under another LAC"
            assert bytes((await talk.ask(read(1, 0))).body) == later.body

    asyncio.run(run())


@at_port
async def test_a_recovery_flag_needs_the_key_and_a_fence_the_same(port) -> None:
    talk = await port.talk()
    await talk.ask(add(1, 0))
    assert (await talk.ask(add(1, 1, is_recovery=True, key=b"k" * 20))).status == Status.EUA
    assert (await talk.ask(fence(1, key=b"k" * 20))).status == Status.EUA
    assert (await talk.ask(p.ReadRequest(0, 1, -1, None, is_fencing=True))).status == Status.EUA
    assert (await talk.ask(add(1, 1))).status == OK
    assert (await talk.ask(fence(1))).status == OK
    assert (await talk.ask(add(1, 2))).status == Status.EFENCED


@at_port
async def test_a_deleted_ledger_is_gone_and_does_not_come_back(port) -> None:
    talk = await port.talk()
    await talk.ask(add(1, 0))
    port.bench.server.store.ledgers[1].is_deleted = True
    assert (await talk.ask(read(1, 0))).status == Status.ENOLEDGER
    assert (await talk.ask(fence(1))).status == Status.ENOLEDGER
    for request in (add(1, 1), add(1, 1, is_recovery=True), p.WriteLacRequest(0, 1, 0, KEY, seal_lac(1, 0, DIGEST))):
        assert (await talk.ask(request)).status == Status.EFENCED


@at_port
async def test_tls_to_a_plain_port_is_closed(port) -> None:
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(189)
    assert await (await port.talk()).say(hello) is None
    talk = await port.talk()
    assert (await talk.ask(p.StartTlsRequest(3))).status == Status.EBADREQ
    assert (await talk.ask(add(1, 0))).status == OK, "and the connection goes on"
