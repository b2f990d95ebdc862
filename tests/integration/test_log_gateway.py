"""Gateways of logs on real bookies: producers, pages, tails, and logs that go from gateway to gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import httpx
import pytest

from ledger.dev import DevCluster
from rsm_spark.logs import Logs, partition_of
from rsm_spark.runtime.settings import ReplicaSettings
from tests.integration.described_answers import assert_as_described
from tests.integration.gateways import GatewayProcess, asking, batch, gateway, records_of

pytestmark = pytest.mark.asyncio


async def test_what_is_appended_is_read_a_page_at_a_time_and_tailed(cluster: DevCluster, unique_name: str) -> None:
    path = f"/v1/logs/{unique_name}"
    async with gateway(cluster.metadata_uri) as one, asking(one.url) as http:
        assert (await http.get("/readyz")).status_code == 200
        assert (await http.post(f"{path}/records", json=batch("p", 1, "a"))).status_code == 404
        assert (await http.put(path, json={"retention_s": 3600})).status_code == 200
        first = (await http.post(f"{path}/records", json=batch("p", 1, "a", "b", "c"))).json()["positions"]
        assert (await http.post(f"{path}/records", json=batch("p", 2, "b", "c"))).json()["positions"] == first[1:]
        gap = await http.post(f"{path}/records", json=batch("p", 9, "z"))
        assert (gap.status_code, gap.json()["reason"], gap.json()["expected"]) == (409, "sequence-gap", 4)
        raw = await http.post(f"{path}/record?producer=p&sequence=4", content=b"d")
        assert raw.status_code == 200
        page = await http.get(f"{path}/records?from=begin&limit=2")
        assert records_of(page) == ["a", "b"]
        assert records_of(await http.get(f"{path}/records?from={page.json()['next']}")) == ["c", "d"]
        seen: list[str] = []
        async with http.stream("GET", f"{path}/tail", headers={"last-event-id": str(first[0])}) as tail:
            async for line in tail.aiter_lines():
                if line.startswith("data: "):
                    seen.append(line)
                if len(seen) == 3:
                    await http.post(f"{path}/records", json=batch("p", 5, "e"))
                if len(seen) == 4:
                    break
        assert json.loads(seen[-1][6:])["payload"] == "ZQ=="
        assert unique_name in (await http.get(f"/v1/logs?prefix={unique_name}")).json()["logs"]
        assert (await http.get(path)).json()["is_open"]
        plan = await http.post(f"{path}/truncate", json={"position": first[1]})
        assert plan.status_code == 200
        assert records_of(await http.get(f"{path}/records")) == ["c", "d", "e"]
        assert b"\nrsm_gateway_records_total " in (await http.get("/metrics")).content
        assert (await http.get("/status")).json()["logs"] == 1
        assert (await http.delete(path)).status_code == 200
        assert (await http.get(path)).status_code == 404


async def test_a_page_shows_what_its_gateway_has_confirmed_before_bookies_know(
    cluster: DevCluster, unique_name: str
) -> None:
    path, late = f"/v1/logs/{unique_name}", ReplicaSettings(explicit_lac_s=1.0)
    async with gateway(cluster.metadata_uri, replica=late) as one, asking(one.url) as http:
        await http.put(path, json={})
        begin = "begin"
        for number in range(1, 4):
            assert (await http.post(f"{path}/records", json=batch("p", number, f"{number}"))).status_code == 200
            page = await http.get(f"{path}/records?from={begin}")
            assert records_of(page) == [f"{number}"]
            begin = page.json()["next"]


async def test_what_is_answered_is_what_is_described(cluster: DevCluster, unique_name: str) -> None:
    plain, parted = f"{unique_name}a", f"{unique_name}b"
    async with gateway(cluster.metadata_uri) as one, asking(one.url) as http:
        asked: list[tuple[str, str, str, object]] = [
            ("/v1/logs/{log}", "PUT", plain, {"retention_s": 3600}),
            ("/v1/logs/{log}", "PUT", parted, {"partitions": 2}),
            ("/v1/logs/{log}/records", "POST", plain, batch("p", 1, "a", "b")),
            ("/v1/logs/{log}/records", "POST", parted, {**batch("p", 1, "a"), "partition": 1, "partitions": 2}),
            ("/v1/logs/{log}/records", "POST", plain, batch("p", 9, "gap")),
            ("/v1/logs/{log}/records", "POST", plain, {"producer": "p"}),
            ("/v1/logs/{log}/record", "POST", plain, b"x"),
            ("/v1/logs/{log}/records", "GET", plain, None),
            ("/v1/logs/{log}/records", "GET", parted, None),
            ("/v1/logs/{log}", "GET", plain, None),
            ("/v1/logs/{log}", "GET", parted, None),
            ("/v1/logs", "GET", "", None),
            ("/v1/logs/{log}/partitions", "POST", parted, {"partitions": 3}),
            ("/v1/logs/{log}/truncate", "POST", plain, {"position": 1}),
            ("/status", "GET", "", None),
            ("/v1/openapi.json", "GET", "", None),
            ("/v1/logs/{log}", "DELETE", plain, None),
            ("/v1/logs/{log}", "GET", plain, None),
        ]
        for path, method, log, body in asked:
            how = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
            query = "?producer=q&sequence=1" if path.endswith("/record") else ""
            answer = await http.request(method, path.replace("{log}", log) + query, **how)  # type: ignore[arg-type]
            await assert_as_described(http, path, method, answer)


async def test_a_log_has_one_gateway_the_others_name_it_and_take_it_over_when_it_goes(
    cluster: DevCluster, unique_name: str
) -> None:
    uri, path = cluster.metadata_uri, f"/v1/logs/{unique_name}"
    async with gateway(uri) as other, asking(other.url) as there:
        async with gateway(uri) as one, asking(one.url) as here:
            await here.put(path, json={})
            first = (await here.post(f"{path}/records", json=batch("p", 1, "a"))).json()["positions"]
            named = await there.post(f"{path}/records", json=batch("p", 2, "b"))
            assert (named.status_code, named.headers["location"]) == (307, f"{one.url}{path}/records")
            assert records_of(await there.get(f"{path}/records")) == ["a"], "whoever it is, it reads"
        again = await there.post(f"{path}/records", json=batch("p", 1, "a", "b"))
        assert again.json()["positions"][0] == first[0]
        async with await Logs.connect(uri) as logs, await logs.open_writer(unique_name):
            refused = await there.post(f"{path}/records", json=batch("p", 3, "c"))
            assert (refused.status_code, refused.json()["reason"]) == (409, "written-by-a-program")
        assert (await there.post(f"{path}/records", json=batch("p", 3, "c"))).status_code == 200
        assert records_of(await there.get(f"{path}/records")) == ["a", "b", "c"]


class _Producer:
    """A program that appends through whichever gateway takes it, until it has heard of each record."""

    def __init__(self, path: str, name: str, urls: list[str]) -> None:
        self.path = path
        self.name = name
        self.urls = urls
        self.positions: dict[int, int] = {}
        self._rng = random.Random(name)

    async def run(self, stop: asyncio.Event) -> None:
        sequence = 1
        async with httpx.AsyncClient(timeout=10) as http:
            while not stop.is_set() or sequence == 1:
                texts = [f"{self.name} {sequence + n}" for n in range(self._rng.choice((1, 5)))]
                found = await self._send(http, batch(self.name, sequence, *texts))
                self.positions.update(enumerate(found, sequence))
                sequence += len(found)

    async def _send(self, http: httpx.AsyncClient, body: object) -> list[int]:
        url = self._rng.choice(self.urls)
        while True:
            try:
                answer = await http.post(f"{url}{self.path}/records", json=body)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                return list(answer.json()["positions"])
            if answer is not None and answer.status_code == 307:
                url = answer.json()["writer"]
                continue
            assert answer is None or answer.status_code in {429, 503}, answer.text
            await asyncio.sleep(0.1)
            url = self._rng.choice(self.urls)


@pytest.mark.timeout(600)
async def test_each_record_is_there_once_while_gateways_are_killed_in_turn(
    cluster: DevCluster, unique_name: str
) -> None:
    uri, path = cluster.metadata_uri, f"/v1/logs/{unique_name}"
    gateways = [await GatewayProcess.start(uri) for _ in range(3)]
    try:
        async with asking(gateways[0].url) as http:
            assert (await http.put(path, json={})).status_code == 200
        urls = [one.url for one in gateways]
        producers, stop = [_Producer(path, f"p{n}", urls) for n in range(6)], asyncio.Event()
        work = [asyncio.create_task(one.run(stop)) for one in producers]
        for place in (0, 1, 2, 0):
            before = sum(len(one.positions) for one in producers)
            while sum(len(one.positions) for one in producers) < before + 60:
                await asyncio.sleep(0.05)
                assert not any(one.done() for one in work), [one for one in work if one.done()][0].result()
            await gateways[place].kill()
            gateways[place] = await GatewayProcess.start(uri, int(urls[place].rpartition(":")[2]))
        stop.set()
        await asyncio.gather(*work)
        async with await Logs.connect(uri) as logs, await logs.reader(unique_name, follow=False) as reader:
            found = [(record.payload.decode(), record.position) async for record in reader]
        for one in producers:
            said = [(f"{one.name} {sequence}", position) for sequence, position in sorted(one.positions.items())]
            assert [row for row in found if row[0].startswith(f"{one.name} ")] == said
    finally:
        for gateway_process in gateways:
            await gateway_process.kill()


async def _events(tail: httpx.Response, count: int) -> list[tuple[str, str]]:
    """Return id and payload of so many events."""
    found: list[tuple[str, str]] = []
    place = ""
    async for line in tail.aiter_lines():
        if line.startswith("id: "):
            place = line[4:]
        elif line.startswith("data: ") and place:
            found.append((place, base64.b64decode(json.loads(line[6:])["payload"]).decode()))
            if len(found) == count:
                break
    return found


async def test_all_partitions_are_read_in_pages_and_tailed_each_key_in_its_order_over_a_growth(
    cluster: DevCluster, unique_name: str
) -> None:
    path, keys = f"/v1/logs/{unique_name}", [b"k%d" % number for number in range(6)]
    async with gateway(cluster.metadata_uri) as one, asking(one.url) as http:
        assert (await http.put(path, json={"partitions": 2})).status_code == 200
        last: dict[int, int] = {}

        async def send(count: int, generation: str) -> None:
            for key in keys:
                partition = partition_of(key, count)
                last[partition] = last.get(partition, 0) + 1
                record = {"key": base64.b64encode(key).decode(), "text": f"{key.decode()} {generation}"}
                body = {"producer": "p", "sequence": last[partition], "records": [record], "partitions": count}
                assert (await http.post(f"{path}/records", json=body)).status_code == 200

        empty = (await http.get(f"{path}/records")).json()
        assert (empty["records"], empty["is_ended"]) == ([], False)
        await send(2, "a")
        await send(2, "b")
        assert (await http.post(f"{path}/partitions", json={"partitions": 3})).status_code == 200
        await send(3, "c")
        whole = (await http.get(f"{path}/records")).json()
        rows = [(row["partition"], row["position"]) for row in whole["records"]]
        assert len(set(rows)) == 18
        assert [row["partition"] for row in whole["records"]] != sorted(row["partition"] for row in whole["records"])
        pages: list[str] = []
        place = "begin"
        while len(pages) < 18:
            page = await http.get(f"{path}/records", params={"from": place, "limit": 4})
            pages += records_of(page)
            assert page.json()["records"], page.text
            place = page.json()["next"]
        for key in keys:
            assert [text[-1] for text in pages if text.startswith(key.decode())] == ["a", "b", "c"]
        # The time to wait is waited, and ends with the first record.
        assert (await http.get(f"{path}/records", params={"from": place, "wait_s": 0.1})).json()["records"] == []
        waiting = asyncio.create_task(http.get(f"{path}/records", params={"from": place, "wait_s": 30}))
        await send(3, "d")
        assert records_of(await waiting)
        # A stream that breaks anywhere goes on behind the last event.
        async with http.stream("GET", f"{path}/tail?from=begin") as tail:
            events = await _events(tail, 7)
        async with http.stream("GET", f"{path}/tail", headers={"last-event-id": events[-1][0]}) as tail:
            events += await _events(tail, 17)
        assert len({text for _, text in events}) == 24
        for key in keys:
            assert [text[-1] for _, text in events if text.startswith(key.decode())] == ["a", "b", "c", "d"]
        async with http.stream("GET", f"{path}/tail") as tail:  # From the end on.
            await send(3, "e")
            assert {text[-1] for _, text in await _events(tail, 6)} == {"e"}
        for wrong in ("7", "0:x", "0:1,0:2"):
            assert (await http.get(f"{path}/records", params={"from": wrong})).status_code == 400
        assert (await http.get(f"{path}.p0/records", params={"from": "0:1"})).status_code == 400


async def test_pages_and_tails_of_all_partitions_end_with_their_end_marks_and_say_what_is_gone(
    cluster: DevCluster, unique_name: str
) -> None:
    path, uri = f"/v1/logs/{unique_name}", cluster.metadata_uri
    async with gateway(uri) as one, asking(one.url) as http:
        async with await Logs.connect(uri) as logs:
            await logs.create(unique_name, partitions=2)
            async with await logs.open_partitioned_writer(unique_name) as writer:
                places = [await writer.append(b"%d" % number) for number in range(4)]
                await writer.mark_end()
            assert {place.partition for place in places} == {0, 1}
            # The first ledger of a partition goes with the truncation; the other one keeps all.
            await logs.truncate(f"{unique_name}.p0", 100)
        page = (await http.get(f"{path}/records")).json()
        assert ({row["partition"] for row in page["records"]}, page["is_ended"]) == ({1}, True)
        async with http.stream("GET", f"{path}/tail", headers={"last-event-id": page["next"]}) as tail:
            assert "event: ended" in [line async for line in tail.aiter_lines()]
        gone = await http.get(f"{path}/records", params={"from": "0:1"})
        assert (gone.status_code, gone.json()["reason"], gone.json()["partition"]) == (410, "trimmed", 0)


async def test_a_partitioned_log_takes_records_by_key_each_once_over_a_growth_and_a_failover(
    cluster: DevCluster, unique_name: str
) -> None:
    uri, path = cluster.metadata_uri, f"/v1/logs/{unique_name}"
    keys = [b"k%d" % number for number in range(8)]

    def body(key: bytes, sequence: int, count: int, text: str) -> dict[str, object]:
        record = {"key": base64.b64encode(key).decode(), "text": text}
        return {"producer": "p", "sequence": sequence, "records": [record], "partitions": count}

    async with gateway(uri) as other, asking(other.url) as there:
        async with gateway(uri) as one, asking(one.url) as here:
            assert (await here.put(path, json={"partitions": 2})).status_code == 200
            assert (await here.get(path)).json()["partition_count"] == 2
            none = await here.post(f"{path}/records", json=batch("p", 1, "a"))
            assert (none.status_code, none.json()["reason"]) == (400, "invalid")
            last, sent = {0: 0, 1: 0}, []
            for number, key in enumerate(keys):
                partition = partition_of(key, 2)
                last[partition] += 1
                sent.append(body(key, last[partition], 2, f"{number}"))
            answers = [await here.post(f"{path}/records", json=one_body) for one_body in sent]
            positions = [answer.json()["positions"] for answer in answers]
            named = await there.post(f"{path}/records", json=sent[0])
            assert (named.status_code, named.headers["location"]) == (307, f"{one.url}{path}/records")
            wrong = {**sent[0], "partition": 1 - partition_of(keys[0], 2)}
            assert (await here.post(f"{path}/records", json=wrong)).status_code == 400
            assert (await here.post(f"{path}/partitions", json={"partitions": 5})).status_code == 200
            assert [(await here.post(f"{path}/records", json=again)).json()["positions"] for again in sent] == positions
        # The other gateway knows what was appended by the old number, too, and takes nothing more by it.
        assert (await there.post(f"{path}/records", json=sent[-1])).json()["positions"] == positions[-1]
        partition = partition_of(keys[0], 2)
        late = await there.post(f"{path}/records", json=body(keys[0], last[partition] + 1, 2, "late"))
        assert (late.status_code, late.json()["reason"], late.json()["partitions"]) == (409, "partitions-changed", 5)
        partition = partition_of(keys[0], 5)
        sequence = last.get(partition, 0) + 1
        assert (await there.post(f"{path}/records", json=body(keys[0], sequence, 5, "late"))).status_code == 200
        assert "late" in records_of(await there.get(f"{path}.p{partition}/records"))
        assert (await there.delete(path)).status_code == 200
