"""Rows as they are read back."""

from __future__ import annotations

import msgspec

from broker.core.policies import ErrorRule, RetryPolicy, TenantPolicy
from broker.core.rows import StateRow, TaskRow, policy_columns, policy_of
from broker.core.tables import BROKER_DESCRIPTION, Table


def test_rows_have_the_columns_of_their_tables_in_order() -> None:
    columns = {table.name: [field.name for field in table.row] for table in BROKER_DESCRIPTION.tables}
    assert list(TaskRow.__struct_fields__) == columns[Table.TASKS]
    assert list(StateRow.__struct_fields__) == columns[Table.STATES]


def test_a_payload_is_read_back_when_it_is_asked_for() -> None:
    columns = ("t", "mail", b"\x00payload", 1, False, 0, 0, 1, "", "", "", 0, 0, 0, 0, "", "", "", 0)
    row = msgspec.msgpack.decode(msgspec.msgpack.encode(columns), type=TaskRow)
    assert row.payload_bytes() == b"\x00payload"
    state = (2, 1, "w", 5, 1, 2, 0, 0, "", "", b"result")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=StateRow).result_bytes() == b"result"


def test_a_policy_comes_back_from_its_columns() -> None:
    policy = TenantPolicy(3.5, 4, {"mail": 1}, 9, 2, 1, 5, RetryPolicy(rules=(ErrorRule("E", backoff_ms=4),)), 7, None)
    columns = policy_columns(policy)
    assert columns[:3] == (3.5, 4, 9)
    assert policy_of(columns) == policy
    assert isinstance(policy_columns(TenantPolicy(weight=2))[0], float)
