"""Ledgers that hold contents for a log, and none of its entries: files of a file store that are too long for records.

    <root>/contents/<log id>                  the log has, or had, such ledgers
    <root>/contents/<log id>/places-<page>    of a log that was made of another one: where contents lie that the records
                                              of that one name

A record names the ledger in which a content lay when it was written. A log that is made of another one has the same
records, and its contents in ledgers of its own. The pages are written before there is such a log, and never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.decoding import json_decoder
from ledger.errors import NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import LogChain
from rsm_spark.core.contents import FileContent
from rsm_spark.core.orphans import content_number, maker_of
from rsm_spark.errors import CorruptLogError, DamagedContentError
from rsm_spark.log.deletion import contents_path, ensure_node
from rsm_spark.log.remains import ledgers_of

_PAGE = "places-"
_PAGE_PLACES = 10_000
"""Of one page: some 400 KB."""


class ContentPlace(msgspec.Struct, frozen=True, array_like=True):
    """Place of a content of a log that was made of another one.

    Attributes:
        number: Under which the log knows it.
        logged: Ledger that its record names.
        ledger: In which it lies.

    """

    number: int
    logged: int
    ledger: int


async def note_contents(store: MetadataStore, log_id: str, rsm_root: str) -> None:
    """Note that a log is going to have such ledgers, before it has the first."""
    await ensure_node(store, contents_path(log_id, rsm_root))


async def has_contents(store: MetadataStore, log_id: str, rsm_root: str) -> bool:
    """Return whether a log has, or had, such ledgers; some of them may still be without a name.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    await store.sync(rsm_root)
    return await store.exists(contents_path(log_id, rsm_root)) is not None


async def contents_of(client: LedgerClient, log_id: str, rsm_root: str) -> dict[int, int]:
    """Return the ledgers that hold contents for a log, each with the number under which the log knows it.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    if not await has_contents(client.store, log_id, rsm_root):
        return {}
    found = {ledger: content_number(one.custom) for ledger, one in (await ledgers_of(client, log_id)).items()}
    return {ledger: number for ledger, number in found.items() if number is not None}


async def note_places(store: MetadataStore, log_id: str, places: Collection[ContentPlace], rsm_root: str) -> None:
    """Note where the contents of a log lie that is being made of another one, before there is such a log.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    await note_contents(store, log_id, rsm_root)
    path, ordered = contents_path(log_id, rsm_root), sorted(places, key=lambda one: one.number)
    for page, first in enumerate(range(0, len(ordered), _PAGE_PLACES)):
        value = msgspec.json.encode(ordered[first : first + _PAGE_PLACES])
        await store.create(f"{path}/{_PAGE}{page:05d}", value)


async def read_places(store: MetadataStore, log_id: str, rsm_root: str) -> dict[int, ContentPlace]:
    """Return where contents lie that the records of an older log name, by number.

    Raises:
        CorruptLogError: A page does not say so.
        MetadataError: The metadata store cannot be asked.

    """
    path = contents_path(log_id, rsm_root)
    await store.sync(path)
    try:
        names = await store.children(path)
    except NoNodeError:
        return {}
    found: dict[int, ContentPlace] = {}
    for name in sorted(one for one in names if one.startswith(_PAGE)):
        value = (await store.get(f"{path}/{name}")).value
        try:
            found.update((one.number, one) for one in json_decoder(tuple[ContentPlace, ...]).decode(value))
        except msgspec.MsgspecError as error:
            raise CorruptLogError(f"{path}/{name}: it does not say where contents lie: {error}") from error
    return found


class ContentPlaces:
    """Places of the contents of one log, looked up once. For one event loop.

    Args:
        store: Session with the metadata store.
        rsm_root: Where logs live.

    """

    def __init__(self, store: MetadataStore, rsm_root: str) -> None:
        self._store = store
        self._root = rsm_root
        self._known: tuple[str, dict[int, ContentPlace]] = ("", {})

    async def of(self, chain: LogChain) -> Mapping[int, ContentPlace]:
        """Return where contents lie that were begun before the log was made of another one, by number.

        Raises:
            CorruptLogError: A page is damaged.
            MetadataError: The metadata store cannot be asked.

        """
        if not chain.origins:
            return {}
        if self._known[0] != chain.log_id:
            self._known = (chain.log_id, await read_places(self._store, chain.log_id, self._root))
        return self._known[1]

    async def ledger_of(self, chain: LogChain, number: int, logged: int) -> int:
        """Return the ledger in which a content lies.

        Args:
            chain: Of the log.
            number: Under which the log knows it.
            logged: Ledger that its record names.

        """
        place = (await self.of(chain)).get(number)
        return logged if place is None else place.ledger


async def open_content(
    client: LedgerClient, chain: LogChain, number: int, content: FileContent, ledger: int
) -> tuple[ReadHandle, bytes]:
    """Open the ledger of a content; return it, and the content's index.

    Args:
        client: Connected ledger client.
        chain: Of the log that names it.
        number: Under which the log knows it.
        content: As the log names it.
        ledger: In which it lies.

    Raises:
        DamagedContentError: The ledger was not made for it, or does not hold what was written.
        LedgerError: Bookies do not answer, or the ledger is gone.

    """
    handle = await client.open_no_recovery(ledger, password=None)
    try:
        return handle, await _index(handle, chain, number, content)
    except BaseException:
        await handle.close()
        raise


async def _index(handle: ReadHandle, chain: LogChain, number: int, content: FileContent) -> bytes:
    fault = _fault_of_ledger(handle, chain, number, content)
    if fault:
        raise damaged_content(content, fault)
    (entry,) = await handle.read(content.chunk_count, content.chunk_count)
    fault = content.fault_of_index(entry.payload)
    if fault:
        raise damaged_content(content, fault)
    return bytes(entry.payload)


def _fault_of_ledger(handle: ReadHandle, chain: LogChain, number: int, content: FileContent) -> str:
    """Return why a ledger is not the one that was made for a content; "" = it is. So nobody reads another's."""
    metadata = handle.metadata
    if content_number(metadata.custom) != number:
        return "it was not made for this file"
    if maker_of(metadata.custom) not in makers_of(chain):
        return "it was not made for this log"
    if not metadata.is_closed or metadata.last_entry_id != content.chunk_count:
        return f"its last entry is {metadata.last_entry_id}, that of the index is {content.chunk_count}"
    return ""


def makers_of(chain: LogChain) -> frozenset[str]:
    """Return the ids of the logs whose ledgers may hold contents of a log: its own, and those that it was made of."""
    return frozenset((chain.log_id, *(one.log_id for one in chain.origins)))


def damaged_content(content: FileContent, fault: str) -> DamagedContentError:
    """Return the error of a content that is not what was written."""
    return DamagedContentError(
        f"ledger {content.ledger} does not hold the content that the log names: {fault}; nothing of it is given out"
    )


def checked_chunk(content: FileContent, index: bytes, number: int, chunk: bytes) -> bytes:
    """Return a chunk as it was read.

    Raises:
        DamagedContentError: It is not what was written.

    """
    fault = content.fault_of_chunk(index, number, chunk)
    if fault:
        raise damaged_content(content, fault)
    return chunk


def logged_ledgers(places: Iterable[ContentPlace]) -> frozenset[int]:
    """Return the ledgers that records of an older log name: a log that has them gives none of its own such an id."""
    return frozenset(one.logged for one in places)
