"""Rows as they are read back."""

from __future__ import annotations

import msgspec

from broker.machine.policies import ErrorRule, RetryPolicy, TenantPolicy
from broker.machine.rows import KeptState, KeptTask, policy_columns, policy_of, unpacked


def test_a_payload_is_read_back_when_it_is_asked_for() -> None:
    columns = ("t", "mail", b"\x00payload", 1, False, 0, 0, 1, "", "", "", 0, 0, 0, 0, "", "", "", 0)
    row = msgspec.msgpack.decode(msgspec.msgpack.encode(columns), type=KeptTask)
    assert unpacked(row.payload) == b"\x00payload"
    state = (2, 1, "w", 5, 1, 2, 0, 0, "", "", b"result")
    assert unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=KeptState).result) == b"result"


def test_a_policy_comes_back_from_its_columns() -> None:
    policy = TenantPolicy(3.5, 4, {"mail": 1}, 9, 2, 1, 5, RetryPolicy(rules=(ErrorRule("E", backoff_ms=4),)), 7, None)
    columns = policy_columns(policy)
    assert (columns.weight, columns.running_max, columns.waiting_max) == (3.5, 4, 9)
    assert policy_of(columns) == policy
    assert isinstance(policy_columns(TenantPolicy(weight=2)).weight, float)
