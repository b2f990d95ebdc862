"""Tasks whose payloads and results the broker cannot read, by real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client import BrokerClient, BrokerExecutor, NewTask
from broker.client.errors import TaskFailedError
from broker.worker.codec import load_codec
from ledger.dev import DevCluster
from ledger.errors import UsageError
from rsm_spark.codecs.framing import CodecError
from tests.integration import function_tasks
from tests.integration.broker_processes import brokers
from tests.integration.payload_codec import encrypting
from tests.integration.worker_processes import started


def test_payloads_and_results_are_seen_by_client_and_worker_alone(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    options = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name)
    tasks = ("--tasks", "tests.integration.function_tasks", "--types", "function,echo")
    codec = ("--codec", "tests.integration.payload_codec:encrypting")
    with (
        brokers(tmp_path, "b", options=options) as (broker,),
        started(tmp_path, "w", *options, *tasks, *codec),
        BrokerClient.connect([broker.url], tenant="acme", codec=encrypting()) as client,
        BrokerClient.connect([broker.url], tenant="acme") as onlooker,
    ):
        task_id = client.submit("echo", "the secret")
        assert client.result(task_id, timeout_s=60) == b"the secret 1"
        assert client.get(task_id).payload_bytes == b"the secret"
        batch = client.submit_many(NewTask("echo", name) for name in ("secret one", "secret two"))
        assert [client.result(one, timeout_s=60) for one in batch.task_ids] == [b"secret one 1", b"secret two 1"]
        with BrokerExecutor(client, max_attempts=1) as executor:
            assert executor.submit(function_tasks.total, 1, 2).result(60)["sum"] == 3
        for one in (task_id, *batch.task_ids):
            seen = onlooker.get(one)
            assert b"secret" not in seen.payload_bytes + seen.result_bytes
        # What nobody with the key has submitted is not run.
        with pytest.raises(TaskFailedError, match="takes encoded ones only"):
            onlooker.result(onlooker.submit("echo", "forged", max_attempts=1), timeout_s=60)
        moved = onlooker.submit("function", onlooker.get(task_id).payload_bytes, max_attempts=1)
        with pytest.raises(TaskFailedError, match="belongs elsewhere"):
            onlooker.result(moved, timeout_s=60)
        with pytest.raises(CodecError):
            client.get(moved)
    kept = b"".join(file.read_bytes() for file in (tmp_path / "b").rglob("*") if file.is_file())
    assert b"the secret" not in kept


@pytest.mark.parametrize("name", ["nonsense", "os:nothing", "tests.integration.payload_codec:no_codec", "not.there:f"])
def test_a_codec_that_is_none_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(UsageError):
        load_codec(name)
