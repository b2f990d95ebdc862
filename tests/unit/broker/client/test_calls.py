"""A call is carried out once, whatever the brokers and the network do meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.client import calls
from broker.client.client import AsyncBrokerClient
from broker.client.errors import (
    BadAnswerError,
    BrokerUnavailableError,
    NotAllowedError,
    NotFoundError,
    QueueFullError,
    SlotTakenError,
)
from ledger.errors import UsageError
from rsm_spark.client.http_wire import parse_origin, request_head
from rsm_spark.errors import OutcomeUnknownError
from tests.unit.broker.client.stand_in import Asked, HttpStandIn, MemoryBroker, Said, problem

pytestmark = pytest.mark.asyncio


async def test_a_connection_is_used_again() -> None:
    async with HttpStandIn(MemoryBroker().answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        for _ in range(5):
            await client.submit("mail", b"x")
    assert server.connection_count == 1


async def test_a_submit_whose_answer_is_lost_is_sent_again_with_the_same_key_and_counts_once() -> None:
    broker = MemoryBroker()
    is_first = True

    async def cut_first(asked: Asked) -> Said:
        nonlocal is_first
        said = await broker.answer(asked)
        was_first, is_first = is_first, False
        return said._replace(is_cut=was_first)

    async with HttpStandIn(cut_first) as server, await AsyncBrokerClient.connect([server.url]) as client:
        task_id = await client.submit("mail", b"x")
    assert list(broker.tasks) == [task_id]
    keys = [asked.headers["idempotency-key"] for asked in server.asked]
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_follower_leads_to_the_leader_and_later_calls_go_there_at_once() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as leader:

        async def follow(asked: Asked) -> Said:
            return problem(307, "not-leader", headers={"location": leader.url + asked.path})

        async with HttpStandIn(follow) as follower, await AsyncBrokerClient.connect([follower.url]) as client:
            await client.submit("mail")
            await client.submit("mail")
            assert client.url == leader.url
            assert (len(follower.asked), len(broker.tasks)) == (1, 2)


async def test_another_broker_is_asked_when_one_is_gone_or_has_no_leader() -> None:
    broker = MemoryBroker()

    async def leaderless(_asked: Asked) -> Said:
        return problem(503, "no-leader", "nobody leads", {"retry-after": "0"})

    async with HttpStandIn(leaderless) as lost, HttpStandIn(broker.answer) as leader:
        urls = ["http://127.0.0.1:9", lost.url, leader.url]
        async with await AsyncBrokerClient.connect(urls) as client:
            await client.submit("mail")
    assert len(broker.tasks) == 1


async def test_without_any_leader_the_error_says_that_nothing_was_done_and_what_was_seen() -> None:
    async def leaderless(_asked: Asked) -> Said:
        # Longer than the call has: its time is over while nothing is on its way.
        return problem(503, "no-leader", "nobody leads", {"retry-after": "60"})

    async with HttpStandIn(leaderless) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(BrokerUnavailableError, match=r"within 1 s: http://.*nobody leads"):
            await client.submit("mail", limit_s=1.0)


async def test_a_broker_that_always_breaks_off_leaves_the_outcome_unknown() -> None:
    async def cut(_asked: Asked) -> Said:
        return Said(is_cut=True)

    async with HttpStandIn(cut) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(OutcomeUnknownError, match="read before you ask again"):
            await client.submit("mail", limit_s=0.3)


async def test_a_replay_of_dead_letters_is_not_asked_again_once_it_may_have_arrived() -> None:
    async def cut(_asked: Asked) -> Said:
        return Said(is_cut=True)

    async with HttpStandIn(cut) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.replay_dead(type="mail")
    assert len(server.asked) == 1


async def test_a_silent_broker_is_left_soon_for_another_one_and_the_task_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "_ATTEMPT_S", 0.05)
    broker = MemoryBroker()

    async def frozen(asked: Asked) -> Said:
        await broker.answer(asked)
        await asyncio.sleep(3600)
        raise AssertionError

    async with HttpStandIn(frozen) as old, HttpStandIn(broker.answer) as leader:
        async with await AsyncBrokerClient.connect([old.url, leader.url]) as client:
            task_id = await client.submit("mail")
            assert client.url == leader.url
        assert list(broker.tasks) == [task_id]
        assert len(old.asked) == 1


async def test_slow_brokers_are_given_ever_more_time_and_what_must_not_be_sent_again_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "_ATTEMPT_S", 0.05)
    broker = MemoryBroker()

    async def slow(asked: Asked) -> Said:
        await asyncio.sleep(0.5)
        return await broker.answer(asked)

    async with HttpStandIn(slow) as server, await AsyncBrokerClient.connect([server.url]) as client:
        await client.submit("mail")
        assert len(server.asked) > 1
        assert len(broker.tasks) == 1
        asked_count = len(server.asked)
        await client.replay_dead(type="mail")
        assert len(server.asked) == asked_count + 1


async def test_a_rate_limit_is_waited_out_and_a_full_queue_is_told_at_once() -> None:
    answers = [problem(429, "rate-limited", headers={"retry-after": "0"}), problem(429, "queue-full", "10 of 10")]

    async def refuse(_asked: Asked) -> Said:
        return answers.pop(0)

    async with HttpStandIn(refuse) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(QueueFullError, match=r"10 of 10 \(queue-full\)"):
            await client.submit("mail")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [(401, "no-token", NotAllowedError), (404, "not-found", NotFoundError), (409, "slot-taken", SlotTakenError)],
)
async def test_a_refusal_has_a_type_and_the_brokers_words(status: int, reason: str, error: type) -> None:
    async def refuse(_asked: Asked) -> Said:
        return problem(status, reason, "because", slot_task_id=7)

    async with HttpStandIn(refuse) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(error, match="because") as caught:
            await client.submit("mail")
    told: Any = caught.value
    assert (told.reason, told.status_code, told.slot_task_id) == (reason, status, 7)


async def test_token_and_tenant_go_with_each_request_and_not_into_errors() -> None:
    async def refuse(_asked: Asked) -> Said:
        return problem(403, "forbidden", "not yours")

    async with HttpStandIn(refuse) as server:
        async with await AsyncBrokerClient.connect([server.url], token="geheim-1234", tenant="acme") as client:
            with pytest.raises(NotAllowedError) as caught:
                await client.overview()
        (asked,) = server.asked
        assert asked.headers["authorization"] == "Bearer geheim-1234"
        assert asked.headers["x-tenant"] == "acme"
        assert "geheim" not in str(caught.value)


async def test_a_token_file_is_read_again_and_one_that_is_broken_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rsm_spark.client.shown_token._LOOK_S", 0.0)
    path = tmp_path / "token"

    def write(text: str, mode: int = 0o600) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").chmod(mode)
        (tmp_path / "new").replace(path)

    write("first-1234\nolder-1234\n")
    monkeypatch.setenv("RSM_BROKER_TOKEN_FILE", str(path))

    async def answer(_asked: Asked) -> Said:
        return Said(200, b"{}")

    async with HttpStandIn(answer) as server:
        givens: tuple[dict[str, Any], ...] = ({"token_file": path}, {})
        for given in givens:
            async with await AsyncBrokerClient.connect([server.url], **given) as client:
                for number, text in enumerate(("second-1234", "third-1234", "\n", "fourth-1234")):
                    await client.cancel(1)
                    write(text, 0o644 if number == 1 else 0o600)
                await client.cancel(1)
        shown = [asked.headers["authorization"].removeprefix("Bearer ") for asked in server.asked]
    assert shown[:5] == ["first-1234", "second-1234", "second-1234", "second-1234", "fourth-1234"]
    assert shown[5:] == ["fourth-1234", "second-1234", "second-1234", "second-1234", "fourth-1234"]
    assert "the token read before is shown on" in caplog.text
    assert "third" not in caplog.text


async def test_a_token_file_is_shown_to_nobody_in_plain_text_beyond_loopback(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("geheim-1234")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="would travel in plain text"):
        await AsyncBrokerClient.connect(["http://192.0.2.1:7364"], token_file=path)
    with pytest.raises(UsageError, match="give either"):
        await AsyncBrokerClient.connect(["http://127.0.0.1:7364"], token="geheim-1234", token_file=path)
    with pytest.raises(UsageError, match="does not exist"):
        await AsyncBrokerClient.connect(["http://127.0.0.1:7364"], token_file=tmp_path / "none")


async def test_what_is_no_json_of_a_broker_is_told() -> None:
    async def babble(_asked: Asked) -> Said:
        return Said(200, b"<html>hello</html>")

    async with HttpStandIn(babble) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(BadAnswerError, match="/api/v1/status"):
            await client.status()


async def test_a_redirect_is_not_followed_out_of_encryption_or_to_nowhere() -> None:
    async def astray(_asked: Asked) -> Said:
        return problem(307, "not-leader", headers={"location": "ftp://elsewhere"})

    async with HttpStandIn(astray) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(BadAnswerError, match="redirects to nowhere"):
            await client.status()


@pytest.mark.parametrize("url", ["ftp://h:1", "http://", "http://h:port", "http://u:p@h:1", "http://h:1\r\nX: y"])
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="URL"):
        parse_origin(url)


async def test_an_address_may_be_ipv6_and_has_its_schemes_port() -> None:
    assert str(parse_origin("https://[::1]")) == "https://[::1]:443"
    assert str(parse_origin("localhost:7364/ui")) == "http://localhost:7364"


async def test_a_header_cannot_smuggle_a_line_in() -> None:
    with pytest.raises(UsageError, match="X-Tenant"):
        request_head(parse_origin("h:1"), "GET", "/", {"X-Tenant": "a\r\nHost: b"}, None)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX-Tenant: b", ""])
async def test_a_target_cannot_smuggle_a_line_in(target: str) -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        request_head(parse_origin("h:1"), "GET", target, {}, None)
