"""A client with another time limit is the same client, but for that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from examples.bank import Bank
from ledger.errors import UsageError
from rsm_spark.client.service_client import ServiceClient


class _Link:
    """Notes the time limits of what it is given."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    async def submit(self, _payload: bytes, timeout_s: float, **_: Any) -> Any:
        self.limits.append(timeout_s)
        return SimpleNamespace(payload=b"\x91\x05", revision=7)

    def check(self, _operation: Any) -> None:
        pass


def test_a_time_limit_of_its_own_goes_with_calls_and_with_what_names_none() -> None:
    link = _Link()
    bank = ServiceClient(link, timeout_s=30.0)  # type: ignore[arg-type]

    async def _call() -> None:
        quick = bank.with_timeout(2.0)
        assert await quick.call(Bank.deposit, "ann", 5) == 5
        assert await quick.call(Bank.balance, "ann") == 5
        await quick.query(b"x", timeout_s=4.0)
        assert await bank.call(Bank.deposit, "ann", 5) == 5
        assert await quick.with_timeout(1).call(Bank.balance, "ann") == 5

    asyncio.run(_call())
    assert link.limits == [2.0, 2.0, 4.0, 30.0, 1]


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("inf"), float("nan")])
def test_a_time_limit_that_is_none_is_refused(timeout_s: float) -> None:
    bank = ServiceClient(_Link())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected seconds, above 0"):
        bank.with_timeout(timeout_s)
