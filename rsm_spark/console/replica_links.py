"""Channels to replicas that are asked again and again: kept while they are asked, closed once they are not."""

from __future__ import annotations

from typing import Any

from ledger.errors import UsageError
from rsm_spark.cli.status import ask_over
from rsm_spark.log.member import Member
from rsm_spark.transport.channel import ReplicaChannel

_UNUSED_LOOKS = 3


class ReplicaLinks:
    """See the module."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], ReplicaChannel] = {}
        self._asked: dict[tuple[str, str], int] = {}
        self._look = 0

    async def ask(self, log: str, member: Member) -> dict[str, Any]:
        """Return what a replica says of itself, or the error why it does not."""
        known: dict[str, Any] = {"replica_id": member.replica_id, "address": member.address}
        if not member.address:
            return {**known, "error": "serves no clients"}
        key = log, member.address
        channel = self._channels.get(key)
        if channel is None:
            try:
                channel = self._channels[key] = ReplicaChannel(member.address, log)
            except UsageError as error:
                return {**known, "error": str(error)}
        self._asked[key] = self._look
        return {**await ask_over(channel, member), "http_url": _http_url(member)}

    async def end_look(self) -> None:
        """Close the channels that nobody has used for a few looks."""
        self._look += 1
        for key in [key for key, look in self._asked.items() if look < self._look - _UNUSED_LOOKS]:
            del self._asked[key]
            await self._channels.pop(key).close()

    async def close(self) -> None:
        """Close all."""
        channels, self._channels = list(self._channels.values()), {}
        self._asked.clear()
        for channel in channels:
            await channel.close()


def _http_url(member: Member) -> str:
    if not member.http:
        return ""
    return f"{'https' if member.http_is_tls else 'http'}://{member.http}"
