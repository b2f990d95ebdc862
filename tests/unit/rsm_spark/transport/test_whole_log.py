"""Clients of a machine whose state has no keys have all of its log, as far as their role goes, or nothing."""

from __future__ import annotations

import pytest

from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.transport.reach import WHOLE_LOG, fault_of, reach_of, watch_fault
from rsm_spark.transport.watch_codec import WatchRequest


def client(prefix: str = "", log: str = "bank", access: ClientAccess = ClientAccess.WRITE) -> Principal:
    return Principal(name="ann", role=Role.CLIENT, logs=(log,), access=access, prefix=prefix.encode())


def test_a_client_without_a_prefix_may_touch_the_log_that_it_names() -> None:
    assert fault_of(client(), "bank", WHOLE_LOG) == ""
    assert "may not touch the log 'bank'" in fault_of(client(log="orders"), "bank", WHOLE_LOG)
    assert reach_of(client(), WHOLE_LOG) is None


def test_a_client_that_may_only_read_is_looked_at() -> None:
    assert reach_of(client(access=ClientAccess.READ), WHOLE_LOG) is not None


@pytest.mark.parametrize("access", ClientAccess)
def test_a_client_with_a_prefix_may_touch_nothing(access: ClientAccess) -> None:
    ann = client("a/", access=access)
    assert "has no keys: " in fault_of(ann, "bank", WHOLE_LOG)
    assert "has no keys: " in watch_fault(ann, "bank", WHOLE_LOG, WatchRequest("bank", "accounts"))
    assert "has no keys: " in WHOLE_LOG.command_fault(b"x", ann)
    assert "has no keys: " in WHOLE_LOG.query_fault(b"x", ann)
