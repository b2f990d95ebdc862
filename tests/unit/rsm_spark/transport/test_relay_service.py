"""Tests of who may have its stream passed on, who may pass on, and as whom the leader serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.core.operation import Message, Operation
from rsm_spark.map import messages as m
from rsm_spark.map.scopes import MapScopes
from rsm_spark.runtime.relaying import LeaderPlace, RelayRoom
from rsm_spark.transport.call_frames import FrameKind, encode_frame
from rsm_spark.transport.relay_codec import PASS_ON_METHOD, RELAY_METHOD, PassedCaller, decode_caller, encode_caller
from rsm_spark.transport.relay_service import RelayService
from rsm_spark.transport.server import ReplicaServer
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble
from tests.unit.rsm_spark.transport.framed_caller import FramedCaller, calling
from tests.unit.rsm_spark.transport.rights_stand import LOG, Keyed, entry, principals, shown_by, token_of
from tests.unit.rsm_spark.transport.test_guard import principals_without

_BOUND = entry("bound", "client", 'access = "write"\nprefix = "own/"\n')
_SESSION = b"s" * 16


class RelayPair:
    """A leader and a follower that passes on to it, each with a file of principals of its own."""

    def __init__(self, folder: Path, room: RelayRoom | None = None) -> None:
        self.files: list[Path] = []
        self.doubles = [ReplicaDouble(Group()), ReplicaDouble(Group(), leads=False)]
        self.servers: list[ReplicaServer] = []
        self.refused: list[tuple[str, str, str, str]] = []
        for name in ("leader", "follower"):
            own = folder / name
            own.mkdir()
            security = shown_by(own, "replica", principals=principals(own, _BOUND))
            self.files.append(own / "principals.toml")
            self.servers.append(ReplicaServer(LOG, security=security, keys=MapScopes(Keyed().keys_of)))
            self.security = security
        leader, follower = self.servers
        leader.guard.on_refused = lambda principal, method, peer, why: self.refused.append(
            ("" if principal is None else principal.name, method, peer, why)
        )
        place = LeaderPlace(leader.address, leader.framed_address)
        self.relays = [
            RelayService(LOG, leader, lambda: None, lambda: True, self.security),
            RelayService(LOG, follower, lambda: place, lambda: False, self.security, room),
        ]
        for relay in self.relays:
            relay.add()

    def forget(self, name: str) -> None:
        """Have the leader's file name somebody no more."""
        self.files[0].write_text(principals_without(self.files[0], name))


@asynccontextmanager
async def pair(folder: Path, room: RelayRoom | None = None) -> AsyncIterator[RelayPair]:
    made = RelayPair(folder, room)
    for server, double in zip(made.servers, made.doubles, strict=True):
        await server.start(double, lambda: b"{}")
    try:
        yield made
    finally:
        for server in made.servers:
            await server.stop(0)


def asked(number: int, *keys: bytes, opens: bool = False) -> Message:
    operations = [Operation(m.encode(m.Put(key, b"v")), 0, None) for key in keys]
    for sequence, operation in enumerate(operations, 1):
        operation.sequence = sequence
    return Message(number, _SESSION, opens, 0, [*operations], [])


async def begun(caller: FramedCaller, name: str) -> None:
    await caller.begin(RELAY_METHOD, token_of(name).encode())


def test_a_caller_comes_out_of_the_codec_as_it_went_in() -> None:
    caller = PassedCaller("orders", b"token", ("a", "b"), "ipv4:10.0.0.7:4711", is_packed=True)
    assert decode_caller(encode_caller(caller)) == caller


@pytest.mark.asyncio
async def test_the_leader_serves_the_client_as_if_it_had_called_there(tmp_path: Path) -> None:
    async with pair(tmp_path) as made, calling(made.servers[1].framed_address) as caller:
        await begun(caller, "bound")
        opened = await caller.ask(asked(1, opens=True), LOG)
        answers = await caller.ask(asked(2, b"own/a", b"others/b"), LOG)
        assert (opened.statuses, answers.statuses) == ([], [AnswerStatus.OK, AnswerStatus.REFUSED])
        leader = made.doubles[0]
        assert leader.owners == {"principal bound"}
        sent = [one.payload for many in leader.submissions for one in many if isinstance(one, Command)]
        assert m.encode(m.Put(b"others/b", b"v")) not in sent
        assert made.doubles[1].submissions == []
        (refused,) = made.refused
        assert refused[0] == "bound"
        assert refused[2].startswith("ipv4:127.0.0.1:")
        assert refused[2].endswith(" by way of replica")


@pytest.mark.asyncio
async def test_nobody_is_passed_on_whom_the_replica_does_not_let_in(tmp_path: Path) -> None:
    async with pair(tmp_path) as made:
        for name, code in (
            ("nobody", grpc.StatusCode.UNAUTHENTICATED),
            ("worker", grpc.StatusCode.PERMISSION_DENIED),
            ("tenant", grpc.StatusCode.PERMISSION_DENIED),
        ):
            async with calling(made.servers[1].framed_address) as caller:
                with pytest.raises(AssertionError) as caught:
                    await begun(caller, name)
                assert f"status={code.value[0]}" in str(caught.value)
        assert made.relays[0].taken.relay_count == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["client", "bound", "worker", "tenant", "operator", "auditor"])
async def test_only_a_replica_may_pass_on(tmp_path: Path, name: str) -> None:
    async with pair(tmp_path) as made, calling(made.servers[0].framed_address) as caller:
        with pytest.raises(AssertionError, match="report to the leader as a replica"):
            await caller.begin(PASS_ON_METHOD, token_of(name).encode())


@pytest.mark.asyncio
async def test_a_client_that_the_leader_does_not_know_is_not_served_by_the_word_of_a_replica(tmp_path: Path) -> None:
    async with pair(tmp_path) as made:
        made.forget("bound")
        async with asyncio.timeout(60):
            while made.servers[0].guard.principal_of(token_of("bound").encode()) is not None:
                await asyncio.sleep(0.05)
        async with calling(made.servers[1].framed_address) as caller:
            await begun(caller, "bound")
            end = await caller.end()
        assert end is not None
        assert end.status == grpc.StatusCode.UNAVAILABLE.value[0]
        assert "does not know the caller" in end.details
        assert made.doubles[0].submissions == []


@pytest.mark.asyncio
async def test_a_stream_ends_when_the_leader_s_file_names_its_client_no_more(tmp_path: Path) -> None:
    async with pair(tmp_path) as made, calling(made.servers[1].framed_address) as caller:
        await begun(caller, "bound")
        assert not (await caller.ask(asked(1, opens=True), LOG)).statuses
        made.forget("bound")
        end = await caller.end()
        assert end is not None
        assert "not in force here any more" in end.details


@pytest.mark.asyncio
async def test_one_client_has_half_of_what_is_passed_on_and_others_have_their_part(tmp_path: Path) -> None:
    async with pair(tmp_path, RelayRoom(relays_max=4)) as made:
        address = made.servers[1].framed_address
        async with calling(address) as one, calling(address) as two, calling(address) as three, calling(address) as own:
            for caller in (one, two):
                await begun(caller, "client")
                assert not (await caller.ask(asked(1, opens=True), LOG)).statuses
            await begun(three, "client")
            end = await three.end()
            assert end is not None
            assert end.status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
            await begun(own, "bound")
            assert not (await own.ask(asked(1, opens=True), LOG)).statuses


@pytest.mark.asyncio
async def test_a_token_is_not_passed_on_in_plain_text_beyond_loopback(tmp_path: Path) -> None:
    async with pair(tmp_path) as made:
        made.relays[1]._leader = lambda: LeaderPlace("192.0.2.1:1", "")
        async with calling(made.servers[1].framed_address) as caller:
            await begun(caller, "client")
            end = await caller.end()
        assert end is not None
        assert "in plain text" in end.details


@pytest.mark.asyncio
async def test_a_replica_of_another_log_and_a_word_that_is_none_are_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as made:
        other = encode_caller(PassedCaller("other", b"", (), "", is_packed=True))
        for said, words in ((other, "serves the log"), (b"\xff", "no PassedCaller")):
            async with calling(made.servers[0].framed_address) as caller:
                await caller.begin(PASS_ON_METHOD, token_of("replica").encode())
                await caller.say(encode_frame(FrameKind.MESSAGE, said))
                end = await caller.end()
            assert end is not None
            assert words in end.details
