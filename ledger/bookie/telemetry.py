"""Metrics of a bookie. Where BookKeeper counts the same thing, the metric has its name; a time of such a one is in ms.

The names are a contract with dashboards and alerts: docs/operations.md lists them.
"""

from __future__ import annotations

import re

from ledger.bookie.collector import Collector
from ledger.bookie.disk_facts import DiskFacts
from ledger.bookie.server import BookieServer
from ledger.http.metrics import MetricsPage
from ledger.storage.entry_store import EntryStore
from ledger.storage.journal_counts import ENTRIES_BOUNDS, SYNC_MS_BOUNDS

_UNREGISTERED, _READ_ONLY, _WRITABLE = -1, 0, 1


def add_server_metrics(page: MetricsPage, server: BookieServer, *, is_registered: bool) -> None:
    """Add what a bookie's server and storage count."""
    store, counts = server.store, server.counts()
    status = _READ_ONLY if store.is_read_only else _WRITABLE
    page.gauge(
        "bookie_SERVER_STATUS",
        "1 = takes adds, 0 = read-only, -1 = not registered.",
        status if is_registered else _UNREGISTERED,
    )
    adds = "bookkeeper_server_ADD_ENTRY_REQUEST"
    page.summary(adds, "Adds.", counts.adds - counts.refused_adds, success="true")
    page.summary(adds, "Adds.", counts.refused_adds, success="false")
    for name, text, count in (
        ("READ_ENTRY", "Reads of one entry, those that found none and long polls too.", counts.reads),
        ("READ_LAC", "Reads of a LAC.", counts.lac_reads),
        ("WRITE_LAC", "Explicit LACs.", counts.lac_writes),
        ("FORCE_LEDGER", "Forces of a ledger.", counts.forces),
        ("GET_LIST_OF_ENTRIES_OF_LEDGER", "Lists of a ledger's entries.", counts.entry_lists),
    ):
        page.summary(f"bookkeeper_server_{name}_REQUEST", text, count)
    page.counter("rsm_bookie_batch_reads_total", "Reads of several entries.", counts.batch_reads)
    page.counter("rsm_bookie_promises_total", "Promises to writers for leases of reads.", counts.promises)
    page.counter(
        "rsm_bookie_waited_fences_total", "Fences told late, since a promise was not over yet.", counts.waited_fences
    )
    page.gauge("rsm_bookie_connections", "Open connections.", counts.connections)
    page.gauge("bookkeeper_server_ADD_ENTRY_BLOCKED", "Connections that wait for room.", counts.waiting_connections)
    page.gauge("rsm_bookie_unfinished_frame_bytes", "Bytes of frames that are not whole yet.", counts.held_bytes)
    _add_journal(page, store)
    page.gauge("rsm_bookie_limbo", "1 = it lost data and does not have all of it again.", bool(store.limbo.reasons))
    page.gauge("rsm_bookie_damaged_blocks", "Blocks that cannot be read.", len(store.damages.found()))
    page.gauge("rsm_bookie_resident_ledgers", "Ledgers in memory.", len(store.ledgers))


def _add_journal(page: MetricsPage, store: EntryStore) -> None:
    journal = store.journal
    counts = journal.counts
    ms = counts.sync_s * 1000
    page.summary("bookie_journal_JOURNAL_SYNC", "Writes and syncs of a batch, ms.", counts.syncs, ms, success="true")
    page.summary(
        "bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Entries a batch.", counts.syncs, counts.entries,
        success="true",
    )  # fmt: skip
    page.summary(
        "bookie_journal_JOURNAL_FORCE_WRITE_BATCH_BYTES", "Bytes a batch.", counts.syncs, counts.payload_bytes,
        success="true",
    )  # fmt: skip
    page.counter("bookie_journal_JOURNAL_WRITE_BYTES", "Bytes of entries written.", counts.payload_bytes)
    page.gauge("bookie_journal_JOURNAL_QUEUE_SIZE", "Runs of entries that wait for a batch.", journal.waiting_count)
    page.gauge("bookie_journal_JOURNAL_MEMORY_USED", "Bytes taken and not yet synced.", journal.pending_bytes)
    bounds = [bound / 1000 for bound in SYNC_MS_BOUNDS]
    text = "Time of a batch of the journal, from the hand-over to the disk's thread to the answers."
    page.histogram("rsm_bookie_journal_sync_seconds", text, bounds, counts.by_sync_ms, counts.sync_s)
    page.histogram(
        "rsm_bookie_journal_batch_entries", "Entries a batch of the journal.", ENTRIES_BOUNDS, counts.by_entries,
        counts.entries,
    )  # fmt: skip
    page.gauge("rsm_bookie_journal_files", "Journal files that are no segments yet.", len(journal.generations))
    page.gauge("rsm_bookie_journal_failed", "1 = the journal has stopped.", journal.failure is not None)


def add_collection_metrics(page: MetricsPage, collector: Collector, store: EntryStore) -> None:
    """Add what collection and compaction count."""
    counts = store.compactor.counts
    page.counter("bookie_gc_DELETED_LEDGER_TOTAL", "Deleted ledgers collected.", collector.collected_count)
    page.counter("bookie_gc_MINOR_COMPACTION_TOTAL", "Minor compactions.", counts.minor_count)
    page.counter("bookie_gc_MAJOR_COMPACTION_TOTAL", "Major compactions.", counts.major_count)


def add_disk_metrics(page: MetricsPage, facts: DiskFacts | None) -> None:
    """Add what the disks show; nothing if they never answered."""
    if facts is None:
        return
    page.gauge("bookie_ledgers_count", "Ledgers of which something lies here, about.", facts.ledger_count)
    page.gauge("bookie_gc_ACTIVE_ENTRY_LOG_TOTAL", "Segments.", facts.segment_count)
    page.gauge("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES", "Bytes of segments.", facts.segment_bytes)
    page.gauge("rsm_bookie_live_bytes", "Bytes of segments that are still needed.", facts.live_bytes)
    for one in facts.ledgers:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", one.folder.removesuffix("/current"))
        used = 100 * (1 - one.free_bytes / max(1, one.total_bytes))
        page.gauge(f"bookie_ledger_dir_{name}_usage", "Percent of the disk that is used.", used)
    folders = [("journal", facts.journal), *(("ledgers", one) for one in facts.ledgers)]
    for kind, one in folders:
        page.gauge("rsm_bookie_disk_free_bytes", "Free bytes.", one.free_bytes, folder=one.folder, kind=kind)
    for kind, one in folders:
        page.gauge("rsm_bookie_disk_bytes", "Size of the disk.", one.total_bytes, folder=one.folder, kind=kind)
