"""Orders of operators to the leader of a log: one node an order, answered in place.

The chain has one writer, the claimed leader: a command that wants it changed asks. `<service>/orders/<n>` holds the
order; the leader writes its answer over it; whoever placed it takes it away. An order is ephemeral: if its operator
goes, it goes. A leader that is deposed in between leaves it to the next one: every order may be carried out twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from ledger.operators import Operator
from ledger.ports import MetadataStore, Watcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, service_path
from rsm_spark.core.detaching import LedgerCopy
from rsm_spark.errors import NoLeaderError

_POLL_S = 1.0


class TrimRequest(msgspec.Struct, frozen=True, tag="trim"):
    """Trim what may go, now.

    Attributes:
        accept_unverified: Take the leader's own newest snapshot for good, although nobody has verified it.
        is_dry_run: Only say what would go.

    """

    accept_unverified: bool = False
    is_dry_run: bool = False


class RaiseFormatRequest(msgspec.Struct, frozen=True, tag="raise_format"):
    """Raise the log's format level; None = to the highest that the leader knows."""

    level: int | None = None


class AdoptKeyRequest(msgspec.Struct, frozen=True, tag="adopt_key"):
    """Give the log a key: the newest in the leader's file, which every live replica must have."""


class RaiseVersionRequest(msgspec.Struct, frozen=True, tag="raise_version"):
    """Raise the version of the machine that the log is of, to the leader's.

    Attributes:
        force: Also where a live replica runs an older one.

    """

    force: bool = False


class RollRequest(msgspec.Struct, frozen=True, tag="roll"):
    """Close the ledger that is written, and go on in another one: a fork shares only what is closed."""


class DetachRequest(msgspec.Struct, frozen=True, tag="detach"):
    """Put copies into the places of shared ledgers; `rsm_spark.log.detachment` says which are whole."""

    copies: tuple[LedgerCopy, ...]


class WritersRequest(msgspec.Struct, frozen=True, tag="writers"):
    """Tell of a log's writers; changes nothing.

    Attributes:
        writer: Of this one, with its parts; "" = of all.
        after: Of all behind this name.

    """

    writer: str = ""
    after: str = ""


class ForgetWriterRequest(msgspec.Struct, frozen=True, tag="forget_writer"):
    """Forget a writer."""

    writer: str


class HandOverWriterRequest(msgspec.Struct, frozen=True, tag="hand_over_writer"):
    """Give a writer to another checkpoint."""

    writer: str
    checkpoint: str


class GrowRequest(msgspec.Struct, frozen=True, tag="grow"):
    """Give a partitioned log so many partitions; its writer does it."""

    partitions: int


Order = (
    TrimRequest | RaiseFormatRequest | AdoptKeyRequest | RaiseVersionRequest | RollRequest | DetachRequest
    | WritersRequest | ForgetWriterRequest | HandOverWriterRequest | GrowRequest
)  # fmt: skip


class AdminAnswer(msgspec.Struct, frozen=True):
    """Answer of the leader to an operator's order.

    Attributes:
        by: Its replica id.
        refusal: Why nothing was done; "" if it was.
        outcome: What came of it: plain values.

    """

    by: str
    refusal: str = ""
    outcome: dict[str, Any] = {}


class PlacedOrder(NamedTuple):
    """An order that waits: its node, and who placed it, as the command says."""

    path: str
    order: Order
    by: Operator


class _Node(msgspec.Struct, frozen=True):
    order: Order
    answer: AdminAnswer | None = None
    by: Operator = Operator("")


def orders_path(log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the parent of the orders."""
    return f"{service_path(log_name, rsm_root)}/orders"


class AdminRequests:
    """Orders of operators to the leader: placed here, and answered.

    Args:
        store: Session with the metadata store.
        log_name: Name of the log.
        rsm_root: Where services live.

    """

    def __init__(self, store: MetadataStore, log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self.log_name = log_name
        self._store = store
        self._path = orders_path(log_name, rsm_root)

    async def place(self, order: Order, *, timeout_s: float, by: Operator | None = None) -> AdminAnswer:
        """Place an order and wait for its answer.

        Args:
            order: What is to be done.
            timeout_s: How long to wait.
            by: Who wants it.

        Raises:
            NoLeaderError: No leader answered in time; the order was taken back, it may have been carried out.
            MetadataError: The metadata store cannot be asked.

        """
        store = self._store
        value = msgspec.json.encode(_Node(order, by=by or Operator("")))
        await self._ensure()
        path = await store.create(f"{self._path}/order-", value, ephemeral=True, sequential=True)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed = asyncio.Event()
                    node = json_decoder(_Node).decode((await store.get(path, watch=changed.set)).value)
                    if node.answer is not None:
                        return node.answer
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_S):
                            await changed.wait()
        except TimeoutError:
            raise NoLeaderError(
                f"log {self.log_name}: no leader answered the order within {timeout_s:g} s: look at rsm status"
            ) from None
        finally:
            with contextlib.suppress(NoNodeError):
                await store.delete(path)

    async def pending(self, *, watch: Watcher) -> list[PlacedOrder]:
        """Return the orders that nobody has answered, oldest first.

        Args:
            watch: Called once when another one may have come.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        await self._ensure()
        found: list[PlacedOrder] = []
        for name in await self._store.children(self._path, watch=watch):
            path = f"{self._path}/{name}"
            with contextlib.suppress(NoNodeError, msgspec.MsgspecError):  # Taken back; or of a version to come.
                node = json_decoder(_Node).decode((await self._store.get(path)).value)
                if node.answer is None:
                    found.append(PlacedOrder(path, node.order, node.by))
        return found

    async def answer(self, placed: PlacedOrder, answer: AdminAnswer) -> None:
        """Answer an order, unless it was taken back or answered meanwhile.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        with contextlib.suppress(NoNodeError, BadVersionError):
            await self._store.set(placed.path, msgspec.json.encode(_Node(placed.order, answer, placed.by)), 0)

    async def _ensure(self) -> None:
        if await self._store.exists(self._path) is None:
            with contextlib.suppress(NodeExistsError):
                await self._store.create(self._path, parents=True)
