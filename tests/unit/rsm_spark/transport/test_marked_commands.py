"""Who may send what as a writer: a bounded client its own keys under its own name, nobody changes rights so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.core.commands import Answer, AnswerStatus, Command, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.writer_marks import MAGIC, encode_mark
from rsm_spark.map.messages import Put, SetAlarm, encode
from rsm_spark.map.scopes import MapScopes
from rsm_spark.transport.codec import ReceivedRequests
from rsm_spark.transport.reach import AuditWords, Reach, reach_of
from tests.unit.rsm_spark.core.marked_leader import chunk, rows_of

SCOPES = MapScopes(lambda _lease: ())
VICTIM_KEY, OWN_KEY = b"victim/1", b"own/1"


class Taker:
    """A replica that takes all."""

    def __init__(self) -> None:
        self.taken: list[Request] = []

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness, owner: str
    ) -> asyncio.Future[Sequence[Answer]]:
        self.taken += requests
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        future.set_result([Answer(AnswerStatus.OK, 1, b"") for _ in requests])
        return future


def _client(prefix: bytes = b"own/") -> Principal:
    return Principal(name="ann", role=Role.CLIENT, access=ClientAccess.WRITE, prefix=prefix)


async def _sent(reach: Reach, command: bytes) -> tuple[Answer, list[Request]]:
    taker = Taker()
    received = ReceivedRequests(1, "log", [Command(bytes(16), 1, 0, command)], LINEARIZABLE, len(command))
    (answer,) = await reach.submit(taker, received, "ann")
    return answer, taker.taken


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (encode_mark(chunk(rows_of((VICTIM_KEY, b"x")), writer="ann/job")), b"has the keys of b'own/' only"),
        (encode_mark(chunk(rows_of((VICTIM_KEY, b"x")), writer="ann/job", is_call=True)), b"keys of b'own/' only"),
        (encode_mark(chunk(rows_of((OWN_KEY, b"x")), writer="victim")), b"may write as ann/"),
        (encode_mark(chunk(rows_of((OWN_KEY, b"x")), writer="annex/job")), b"may write as ann/"),
        (MAGIC + b"rubbish", b"not a marked command"),
    ],
)
async def test_a_bounded_client_reaches_neither_other_keys_nor_other_writers(command: bytes, words: bytes) -> None:
    reach = reach_of(_client(), SCOPES)
    assert reach is not None
    answer, taken = await _sent(reach, command)
    assert answer.status is AnswerStatus.REFUSED
    assert words in answer.payload
    (request,) = taken
    assert isinstance(request, Command)
    assert request.payload == SCOPES.nothing


@pytest.mark.asyncio
async def test_a_bounded_client_writes_its_own_keys_under_its_own_name() -> None:
    reach = reach_of(_client(), SCOPES)
    assert reach is not None
    command = encode_mark(chunk(rows_of((OWN_KEY, b"x")), writer="ann/job"))
    answer, taken = await _sent(reach, command)
    assert answer.status is AnswerStatus.OK
    assert [one.payload for one in taken if isinstance(one, Command)] == [command]


@pytest.mark.asyncio
@pytest.mark.parametrize("is_marked", [False, True])
async def test_a_client_of_the_whole_map_administers_nothing(is_marked: bool) -> None:
    reach = reach_of(Principal(name="ann", role=Role.CLIENT, access=ClientAccess.WRITE), SCOPES)
    assert reach is not None
    alarm = encode(SetAlarm("nospace", 1, is_raised=True))
    answer, (request,) = await _sent(reach, encode_mark(chunk(alarm)) if is_marked else alarm)
    assert answer.status is AnswerStatus.REFUSED
    assert b"may not administer the log" in answer.payload
    assert isinstance(request, Command)
    assert request.payload == SCOPES.nothing
    put = encode(Put(VICTIM_KEY, b"\x10"))
    answer, (request,) = await _sent(reach, put)
    assert (answer.status, request) == (AnswerStatus.OK, Command(bytes(16), 1, 0, put))


@pytest.mark.asyncio
async def test_a_command_that_is_audited_cannot_hide_behind_a_mark() -> None:
    words = AuditWords(lambda payload: "changes rights" if payload == b"grant" else "", lambda _reply: "done")
    reach = reach_of(Principal(name="op", role=Role.OPERATOR), None, words)
    assert reach is not None
    answer, taken = await _sent(reach, encode_mark(chunk(b"grant")))
    assert answer.status is AnswerStatus.REFUSED
    assert b"it changes no rights" in answer.payload
    assert not taken
