"""Refusal to start a second process under the id of a replica that lives."""

from __future__ import annotations

import asyncio
import contextlib

from ledger.errors import MetadataError, UsageError
from rsm_spark.errors import ConnectionLostError
from rsm_spark.log.discovery import Discovery
from rsm_spark.transport.beat_client import GrpcBeats

_LOOKS = 3
_LOOK_S_MAX = 1.0
_PAUSE_S = 1.0


async def refuse_second_process(discovery: Discovery, beats: GrpcBeats, log: str, replica_id: str, own: str) -> None:
    """Refuse to start while another process serves as this replica: one has its name in ZooKeeper, both its address.

    One that is about to end is waited for. One that is gone, cut off or frozen does not answer, and is not heeded.

    Args:
        discovery: Of the log.
        beats: Listens to replicas.
        log: Name of the log.
        replica_id: Of the process that starts.
        own: Address at which it serves: who was there before is gone.

    Raises:
        UsageError: Another process serves so.

    """
    address = ""
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_PAUSE_S)
        try:
            member = await discovery.member(replica_id)
        except MetadataError:
            return
        if member is None or member.address in ("", own):
            return
        address = member.address
        if not await _beats(beats, address, member.incarnation):
            return
    raise UsageError(
        f"log {log}: replica {replica_id!r} runs already, in another process, at {address}: give this one "
        "another --replica-id, with a folder of its own, or end that one"
    )


async def _beats(beats: GrpcBeats, address: str, incarnation: str) -> bool:
    heard = asyncio.Event()
    listening = asyncio.get_running_loop().create_task(beats.listen(address, incarnation, heard.set))
    hearing = asyncio.get_running_loop().create_task(heard.wait())
    try:
        await asyncio.wait({listening, hearing}, timeout=_LOOK_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (listening, hearing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionLostError):
                await task
    return heard.is_set()
