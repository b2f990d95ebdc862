"""Columns of the source; `connectors.spark.arrow` says the same for the batches that tasks hand over.

`rows=raw`, a row an entry; the columns from `log` and from `revision` to `logged_at` are null for plain ledgers:

| column | meaning |
| --- | --- |
| log | name of the log |
| ledger_id, entry_id | its place |
| length | payload bytes of the ledger up to this entry, inclusive |
| revision | of its first record; of the next one if it holds none |
| record_count, leader_epoch, logged_at | from its envelope |
| payload | its bytes |

The LAC in an entry's header is left out on purpose: it differs between replicas of one entry after a recovery, and a
source must read the same rows again.

`rows=records`, a row a record of a log:

| column | meaning |
| --- | --- |
| log, ledger_id, entry_id | its place |
| revision | its number in the log: 1, 2, 3, … without gaps |
| leader_epoch, logged_at | from its entry's envelope |
| type, name | number and name of its type, as the machine (or the kernel) describes it |
| session, sequence, answered_up_to, reply | head of the client's command, on its first record; else null |
| table_name, fold | the table whose row it decides, and how: `upsert`, `delete`, `none`; null for the kernel's own |
| key, row | canonical msgpack bytes of that row's key and other columns; `row` is null for a delete |
| fields | msgpack array of all its fields; null where `key` and `row` hold every one of them already |
| entry_hash | on the last record of an entry: SHA-256 of its payload, the prefix hash after it |
"""

from __future__ import annotations

__all__ = ["RAW_DDL", "RECORDS_DDL"]

RAW_DDL = (
    "log string, ledger_id bigint, entry_id bigint, length bigint, revision bigint, record_count int, "
    "leader_epoch bigint, logged_at timestamp, payload binary"
)
"""Spark's schema of `rows=raw`."""

RECORDS_DDL = (
    "log string, ledger_id bigint, entry_id bigint, revision bigint, leader_epoch bigint, logged_at timestamp, "
    "type int, name string, session binary, sequence bigint, answered_up_to bigint, reply binary, table_name string, "
    "fold string, key binary, row binary, fields binary, entry_hash binary"
)
"""Spark's schema of `rows=records`."""
