"""Search of a worker for a broker: the given ones in turn, or the leader as the metadata store names it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from broker.worker.core.route import BrokerRoute
from ledger.errors import LedgerError, UsageError
from ledger.ports import MetadataStore
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.client.leader_finder import FoundReplica
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery
from rsm_spark.transport.stream_factory import transport_of

_SESSION_TIMEOUT_MS = 10_000


def parse_addresses(brokers: Sequence[str]) -> list[str]:
    """Return the addresses, checked.

    Raises:
        UsageError: One is not "host:port".

    """
    for address in brokers:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65_536):
            raise UsageError(f"broker {address!r}: expected host:port, for example 127.0.0.1:7010")
    return list(brokers)


class BrokerFinder:
    """Names the broker to try next, after a pause where one is due.

    Args:
        brokers: Addresses; empty = the metadata store is asked.
        metadata_uri: Asked only if no brokers are given; None = by the environment.
        log: Name of the broker's log.
        rsm_root: Root of the logs in the metadata store.
        rng: Spreads the pauses.

    Attributes:
        route: What is known so far.
        trouble: Why no broker was found last.

    Raises:
        UsageError: An address is none.

    """

    def __init__(
        self,
        brokers: Sequence[str],
        metadata_uri: str | None,
        *,
        log: str,
        rsm_root: str,
        rng: random.Random,
    ) -> None:
        self.route = BrokerRoute(parse_addresses(brokers))
        self.trouble = ""
        self._uri = MetadataUri.of(metadata_uri) if not brokers else None
        self._log = log
        self._rsm_root = rsm_root
        self._rng = rng
        self._store: MetadataStore | None = None
        self._found: FoundReplica | None = None

    async def next(self) -> str | None:
        """Return the address to try now, having waited as long as is due; None if none is known."""
        changed = asyncio.Event()
        found = await self._ask(changed)
        address, pause_ms = self.route.next(found, self._rng.random())
        if pause_ms:
            with contextlib.suppress(TimeoutError):
                # Another leader ends the pause.
                async with asyncio.timeout(pause_ms / 1000):
                    await changed.wait()
                address = await self._ask(None) or address
        return address

    async def find_framed(self, address: str) -> str:
        """Return the framed port of a broker, by the metadata store; "" = it has none, or it is not to be used.

        Raises:
            UsageError: `RSM_STORE__TRANSPORT` names no transport.

        """
        if self._found is None or transport_of(None) == "grpc":
            return ""
        return await self._found.find_framed(address)

    async def close(self) -> None:
        """Disconnect from the metadata store."""
        if self._store is not None:
            await self._store.close()

    async def _ask(self, changed: asyncio.Event | None) -> str | None:
        if self._uri is None:
            return None
        try:
            if self._store is None:
                self._store = await connect(self._uri.hosts, session_timeout_ms=_SESSION_TIMEOUT_MS)
                self._found = FoundReplica(Discovery(self._store, self._log, self._rsm_root))
            assert self._found is not None
            found = await self._found.find(changed.set if changed is not None else _nothing)
            self.trouble = self._found.trouble
        except (LedgerError, RsmError) as error:
            self.trouble = str(error)
            return None
        return found


def _nothing() -> None:
    pass
