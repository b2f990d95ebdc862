"""Brokers and their leader, from URLs that were named, or from ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ledger.errors import LedgerError, UsageError
from rsm_spark.client.http_wire import Origin, parse_origin
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.member import Member


class BrokerDirectory(Protocol):
    """Names the brokers to try, the most promising first."""

    trouble: str
    """Reason why no broker was found last, in a few words; "" = one was."""

    async def origins(self) -> list[Origin]:
        """Return them."""
        ...


class NamedBrokers:
    """Always the same brokers.

    Args:
        urls: Of them, at least one.

    Raises:
        UsageError: There is none, or one is no URL.

    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._origins = [parse_origin(url) for url in urls]
        if not self._origins:
            raise UsageError("no broker URL is given: name at least one, such as http://127.0.0.1:7364")
        self.trouble = ""

    async def origins(self) -> list[Origin]:
        """Return them, in the order given."""
        return list(self._origins)


class FoundBrokers:
    """Brokers as the metadata store names them, the leader first.

    Args:
        discovery: Of the broker's log.
        is_tls: The client is configured for TLS: what does not say how it is called is called by https.

    Attributes:
        trouble: Why there was none at the last look.

    """

    def __init__(self, discovery: Discovery, *, is_tls: bool = False) -> None:
        self._discovery = discovery
        self._is_tls = is_tls
        self.trouble = "not looked for yet"

    async def origins(self) -> list[Origin]:
        """Return those that are alive and serve HTTP."""
        try:
            leader = await self._discovery.leader()
            members = await self._discovery.members()
        except (LedgerError, RsmError) as error:
            self.trouble = str(error)
            return []
        first = leader[1].replica_id if leader is not None and leader[1] is not None else ""
        members.sort(key=lambda member: member.replica_id != first)
        found = [_origin(member, is_tls=self._is_tls) for member in members if member.http]
        self.trouble = "" if found else "no broker that serves HTTP is registered"
        return found


def _origin(member: Member, *, is_tls: bool) -> Origin:
    said = is_tls if member.http_is_tls is None else member.http_is_tls
    return parse_origin(f"{'https' if said else 'http'}://{member.http}")
