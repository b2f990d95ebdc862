"""Functions of deployed code that are given a session of the pool's driver: with real brokers, processes and Spark."""

from __future__ import annotations

import errno
import socket
import time
from pathlib import Path

import grpc
import pyspark.sql.connect.proto as spark_proto
import pytest
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

from broker.client import BrokerClient
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.pool_processes import PoolProcess, descendants, pool

_FUNCTIONS = Path(__file__).with_name("spark_functions.py")
_NAMES = ("total", "looks", "ships", "fails", "works_for_ever", "dies_while_another_session_works")
_STILL_S = 5.0


def _until_still(process: PoolProcess, file: Path) -> None:
    """Wait until nobody has written to a file for a while: who writes there does so twenty times a second."""
    process.until(lambda: time.time() - file.stat().st_mtime > _STILL_S)


def _refused(address: str, token: str) -> grpc.StatusCode:
    """Return what somebody of this machine is told who has this token."""
    credentials = grpc.local_channel_credentials()
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    request = spark_proto.AnalyzePlanRequest(session_id="00112233-4455-4677-8899-aabbccddeeff")
    request.user_context.user_id = "task-1-1"
    request.spark_version.SetInParent()
    with grpc.secure_channel(address, credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        SparkConnectServiceStub(channel).AnalyzePlan(request, timeout=60)
    code: grpc.StatusCode = caught.value.code()
    return code


def _is_held(address: str) -> bool:
    """Return whether nobody can have the server's port on IPv6's loopback; there may be none."""
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", int(address.rpartition(":")[2])))
        except OSError as error:
            return error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL}
        return False


@pytest.mark.timeout(900)
def test_functions_have_sessions_that_end_with_their_runs_and_nobody_else_has(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    ticks, secret = tmp_path / "ticks", tmp_path / "secret"
    ticks.mkdir()
    secret.write_text("of the worker")
    options = ("--min", "0", "--max", "0", "--sql-threads", "1", "--python-threads", "2")
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (broker,),
        BrokerClient.connect([broker.url], tenant="acme") as client,
    ):
        entries = [f"spark_functions:{one}" for one in _NAMES]
        client.deploy_code(_FUNCTIONS, entries=entries, name="functions")

        def submit(name: str, payload: str) -> int:
            mode = f"spark_functions:{name}"
            return client.submit("spark_python", payload, code="functions", mode=mode, max_attempts=1)

        first = submit("total", "1000")
        with pool(tmp_path, "local[3]", *found, *options) as process:
            process.until(lambda: client.get(first).status in {"finished", "error"})
            said, address = client.result(first).decode().split()
            assert said == "499500"
            commands = [command for command in descendants(process.process.pid).values() if "java" in command]
            assert commands
            assert not any("authenticate" in command for command in commands), "nobody reads the token there"
            for token in ("", "0" * 64):
                assert _refused(address, token) == grpc.StatusCode.UNAUTHENTICATED
            assert _is_held(address), "nobody else is shown the token"

            endless = submit("works_for_ever", str(ticks / "cancelled"))
            process.until((ticks / "cancelled").exists)
            beside = [submit("total", "10"), submit("looks", str(secret)), submit("looks", str(secret))]
            assert client.result(beside[0], timeout_s=240).split()[0] == b"45", "others work beside it"
            assert [client.result(one, timeout_s=240) for one in beside[1:]] == [b"", b""]
            client.cancel(endless)
            process.until(lambda: client.get(endless).status == "cancelled")
            _until_still(process, ticks / "cancelled")

            dead = submit("dies_while_another_session_works", str(ticks / "left"))
            process.until(lambda: client.get(dead).status == "error")
            assert "exit code 3" in client.get(dead).error
            _until_still(process, ticks / "left")

            assert client.result(submit("ships", ""), timeout_s=240) == b"7"
            bad = submit("fails", "")
            none = client.submit("spark_python", "x", max_attempts=1)
            process.until(lambda: {client.get(one).status for one in (bad, none)} == {"error"})
            process.terminate()
            assert process.wait_ended() == 0, process.errors()
        assert "TABLE_OR_VIEW_NOT_FOUND" in client.get(bad).error
        assert "names no function" in client.get(none).error
