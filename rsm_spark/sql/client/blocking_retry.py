"""Interactive transactions of blocking programs, begun again as long as others are first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ledger.errors import UsageError
from rsm_spark.sql.client.blocking import BlockingInteractiveTransaction, BlockingSqlClient
from rsm_spark.sql.client.transaction import pause_s
from rsm_spark.sql.errors import SqlRetryableError

T = TypeVar("T")


def retry(
    client: BlockingSqlClient,
    work: Callable[[BlockingInteractiveTransaction], T],
    *,
    attempts: int = 10,
    timeout_s: float | None = None,
) -> T:
    """Run a function in an interactive transaction, from its beginning again as long as others are first.

    Args:
        client: Of the tables.
        work: Gets the transaction; called once for each attempt.
        attempts: At most so many.
        timeout_s: Time limit of each call of the transaction; None = the client's.

    Returns:
        What the function returned in the attempt that was committed.

    Raises:
        SqlRetryableError: The last attempt failed too.

    """
    for attempt in range(1, attempts + 1):
        try:
            with client.interactive(timeout_s=timeout_s) as transaction:
                return work(transaction)  # Once it is committed.
        except SqlRetryableError:
            if attempt == attempts:
                raise
            time.sleep(pause_s(attempt))
    raise UsageError(f"attempts {attempts}: expected at least 1")
