"""Looks whether a replica can fold what its log has described, before it says that it is ready.

A machine that follows other versions' descriptions need not look, nor one whose new records wait for a format level.
Any other would find out only when it comes to the description, long after it has begun to serve.
"""

from __future__ import annotations

import logging

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from rsm_spark.core.chain import ChainLedger
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import (
    MachineDescription,
    StateMachine,
    check_described,
    decode_description,
    evolving,
    is_heeding,
)
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.errors import MachineVersionError, NoSuchLogError, RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.runtime.settings import ReplicaSettings

_LOGGER = logging.getLogger(__name__)
_FIRST_ENTRIES = 2
"""A ledger begins with a description; an entry that was appended again may stand before it."""


async def refuse_newer_log(client: LedgerClient, log: str, machine: StateMachine, settings: ReplicaSettings) -> None:
    """Refuse a log that a newer version of the machine has described, if the machine cannot follow that.

    Args:
        client: Connected.
        log: Name of the log; there may be none yet.
        machine: Of the replica.
        settings: Root, password and keys count.

    Raises:
        MachineVersionError: It has.

    """
    if evolving(machine) is not None or is_heeding(machine):
        return
    chains = ChainStore(client.store, log, settings.rsm_root)
    try:
        chain, _ = await chains.read()
        for ledger in reversed(chain.ledgers):
            described = await _described_in(client, chains, ledger, settings)
            if described is not None:
                check_described(machine, described)
                return
    except (MachineVersionError, NoSuchLogError) as error:
        if isinstance(error, MachineVersionError):
            raise
    except (LedgerError, RsmError) as error:  # The replica comes to it, and says it with all that it needs.
        _LOGGER.info("log %s: its description cannot be looked at yet: %s", log, error)


async def _described_in(
    client: LedgerClient, chains: ChainStore, ledger: ChainLedger, settings: ReplicaSettings
) -> MachineDescription | None:
    reader = LogReader(
        client,
        chains,
        password=settings.ledger_password,
        keys=settings.log_keys,
        position=LogPosition(ledger.ledger_id, -1),
        revision=ledger.first_revision - 1,
        entries_max=_FIRST_ENTRIES,
    )
    try:
        for entry in await reader.read():
            if entry.position.ledger_id != ledger.ledger_id:
                break
            for record in decode_records(body_of(entry.payload)):
                if record.type == KernelRecord.MACHINE_DESCRIBED:
                    return decode_description(record.fields[0])
    finally:
        await reader.close()
    return None
