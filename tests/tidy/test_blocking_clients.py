"""The blocking clients are what the generator writes, and have every call of the asynchronous ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.client.blocking import BlockingTransaction, BrokerClient
from broker.client.client import AsyncBrokerClient, OpenTransaction
from ledger.client.adv_handle import AdvWriteHandle
from ledger.client.blocking import (
    BlockingAdvWriteHandle,
    BlockingLedgerClient,
    BlockingReadHandle,
    BlockingWriteHandle,
)
from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.client.write_handle import WriteHandle
from rsm_spark.logs import Logs, PlainLogReader, PlainLogWriter
from rsm_spark.logs.blocking import BlockingLogs, BlockingPlainLogReader, BlockingPlainLogWriter
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient

_ROOT = Path(__file__).resolve().parents[2]
_GENERATOR = _ROOT / "tools" / "generate_blocking.py"
_OF_CONNECTIONS = {
    "on_stored",
    "on_responses",
    "on_unanswered",
    "on_connected",
    "on_disconnected",
    "on_unreachable",
    "sweep",
}
_OF_PARTITIONS = {"become_partition", "writers", "append_marked"}
_PAIRS: list[tuple[type[Any], type[Any], set[str]]] = [
    (AsyncBrokerClient, BrokerClient, {"event_stream"}),
    (OpenTransaction, BlockingTransaction, set()),
    (MapClient, BlockingMapClient, {"scan_pages", "keep_session"}),
    (Logs, BlockingLogs, set()),
    (PlainLogWriter, BlockingPlainLogWriter, {"open", *_OF_PARTITIONS}),
    (PlainLogReader, BlockingPlainLogReader, {"read_shown"}),
    (LedgerClient, BlockingLedgerClient, {"store", "ledgers"}),
    (ReadHandle, BlockingReadHandle, {"blocks"}),
    (WriteHandle, BlockingWriteHandle, _OF_CONNECTIONS | {"drain"}),
    (AdvWriteHandle, BlockingAdvWriteHandle, _OF_CONNECTIONS | {"drain"}),
]


def test_the_files_are_what_the_generator_writes() -> None:
    checked = subprocess.run(
        [sys.executable, _GENERATOR, "--check"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("asynchronous", "blocking", "left_out"), _PAIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_blocking_class_has_every_call(asynchronous: type[Any], blocking: type[Any], left_out: set[str]) -> None:
    names = {name for name in dir(asynchronous) if not name.startswith("_")}
    assert len(names) > len(left_out)
    assert {name for name in names - left_out if not hasattr(blocking, name)} == set()
    for name in names - left_out - {"connect"}:
        ours, theirs = inspect.getattr_static(blocking, name), inspect.getattr_static(asynchronous, name)
        assert not inspect.iscoroutinefunction(ours), name
        if inspect.isfunction(theirs):
            assert _parameters(ours) == _parameters(theirs), name


def _parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
