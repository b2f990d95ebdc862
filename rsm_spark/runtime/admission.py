"""Admission of this replica to its log: asked when it boots, and whenever the chain has changed."""

from __future__ import annotations

from rsm_spark.core.admission import check_admission, password_mark
from rsm_spark.core.chain import LogChain
from rsm_spark.runtime.context import ReplicaContext


async def admit(context: ReplicaContext, chain: LogChain) -> None:
    """Work out the mark of the ledger password, then `check`."""
    password = context.settings.ledger_password
    if password:  # Hashing it takes some time.
        context.password_mark = await context.run_blocking(lambda: password_mark(password, chain.log_id))
    else:
        context.password_mark = password_mark(password, chain.log_id)
    check(context, chain)


def check(context: ReplicaContext, chain: LogChain) -> None:
    """Refuse to go on with a log that this process cannot read or could not take over.

    Raises:
        ForkedLogError: It is not the log that the state is of.
        FormatLevelError: Its format level is above what this version knows.
        LedgerPasswordError: Its ledgers have another password.
        LogKeyError: It has a key that this process lacks.

    """
    keys = context.settings.log_keys
    if keys is not None and chain.key_id and keys.get(chain.key_id) is None:
        keys.refresh()
    check_admission(
        chain,
        log_name=context.log,
        format_level=context.format_level,
        mark=context.password_mark,
        log_id=context.log_id,
        key_ids=() if keys is None else keys.ids,
        is_sealed=context.tip.is_sealed,
    )
