"""Kind of a log: of which machine it is, as its first records say."""

from __future__ import annotations

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import decode_description
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.errors import MissingLogError
from rsm_spark.log.commit_log import LogReader
from rsm_spark.logs.context import LogContext

_DESCRIBED_WITHIN = 20


async def machine_name(context: LogContext) -> str:
    """Return what machine a log says that it is of, where it begins now; "" = it does not say."""
    while True:
        chain, _ = await context.chains.read()
        try:
            return await _described_at(context, chain) if chain.ledgers else ""
        except MissingLogError:
            continue  # That ledger has been trimmed meanwhile.


async def _described_at(context: LogContext, chain: LogChain) -> str:
    """Return what machine the first ledger of a chain is of; "" = it does not say.

    Raises:
        MissingLogError: It has left the log.

    """
    first, settings = chain.ledgers[0], context.settings
    reader = LogReader(
        context.client,
        context.chains,
        password=settings.ledger_password,
        keys=settings.log_keys,
        position=LogPosition(first.ledger_id, NO_ENTRY),
        revision=first.first_revision - 1,
        entries_max=_DESCRIBED_WITHIN,
    )
    try:
        for entry in await reader.read():
            for record in decode_records(body_of(entry.payload)):
                if record.type == KernelRecord.MACHINE_DESCRIBED:
                    return decode_description(record.fields[0]).name
    finally:
        await reader.close()
    return ""
