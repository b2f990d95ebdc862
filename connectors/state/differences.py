"""Origin of a difference: the entry that it comes from, by rows compared key by key, or by digests alone.

Two states are compared row by row where both can be read. Of a leader's checkpoint only the digest is known: then each
change since the last checkpoint that agrees is tried: does the digest come out if the leader did not apply it?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from rsm_spark.core.digest import DIGEST_MODULUS

Place = Callable[[int], tuple[int, int]]
"""Revision of a record -> (ledger, entry) that holds it; (-1, -1) where the log does not have it any more."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is not what the log says.

    Attributes:
        what: What was compared: `checkpoint`, a snapshot, a table, with its place.
        revision: At which state.
        text: In words.
        table: Table of the machine; "" = not known.
        key: Of the row, readable.
        in_log: The row that the log comes to; None = none.
        found: The row that was found instead; None = none.
        record: Revision of the record that the row comes from, or that took it away; 0 = not known.
        ledger: Ledger of that record's entry; -1 = not known.
        entry: That entry; -1 = not known.
        version: Of a Delta table: the first version that differs, of those that can be read; -1 = no table.
        row_count: Rows that differ in all; 0 = not known.

    """

    what: str
    revision: int
    text: str
    table: str = ""
    key: str = ""
    in_log: str | None = None
    found: str | None = None
    record: int = 0
    ledger: int = -1
    entry: int = -1
    version: int = -1
    row_count: int = 0


def shown(packed: bytes | None) -> str | None:
    """Return canonical bytes as a person reads them."""
    if packed is None:
        return None
    try:
        values = msgspec.msgpack.decode(packed)
    except msgspec.MsgspecError:
        return packed.hex()
    return msgspec.json.encode([_readable(value) for value in values]).decode()


def _readable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else "0x" + value.hex()
    if isinstance(value, list):
        return [_readable(one) for one in value]
    return value


def compare_rows(
    expected: DataFrame, found: DataFrame, *, what: str, revision: int, place: Place, limit: int = 10
) -> list[Difference]:
    """Return rows that differ, those of the earliest record first.

    Args:
        expected: What the log comes to: table_name, key, row, revision; a null row = it is gone.
        found: The same, as it was found.
        what: What was compared.
        revision: At which state.
        place: Where records are.
        limit: At most so many; each says how many there are in all.

    """
    theirs = found.select("table_name", "key", F.col("row").alias("found"), F.col("revision").alias("found_revision"))
    both = expected.join(theirs, ["table_name", "key"], "full_outer").where("NOT (row <=> found)")
    both = both.select("*", F.coalesce("revision", "found_revision").alias("at")).persist()
    try:
        count = both.count()
        rows = both.orderBy("at", "table_name", "key").limit(limit).collect() if count else []
    finally:
        both.unpersist()
    return [_difference(row.asDict(), what, revision, place, count) for row in rows]


def _difference(row: dict[str, Any], what: str, revision: int, place: Place, count: int) -> Difference:
    record = int(row["revision"] or 0)
    ledger, entry = place(record) if record else (-1, -1)
    key, in_log, found = (shown(None if row[name] is None else bytes(row[name])) for name in ("key", "row", "found"))
    origin = (
        f"by record {record} (ledger {ledger}, entry {entry})" if record else "of which the log knows no record at all"
    )
    return Difference(
        what,
        revision,
        f"{what}, at revision {revision}: table {row['table_name']}, key {key}: the log comes to "
        f"{in_log or 'no row'} {origin}, found is {found or 'no row'}",
        table=row["table_name"],
        key=key or "",
        in_log=in_log,
        found=found,
        record=record,
        ledger=ledger,
        entry=entry,
        row_count=count,
    )


class Version(msgspec.Struct, frozen=True):
    """A row as one record left it.

    Attributes:
        table: Its table.
        key: Canonical bytes of its key.
        revision: Of the record.
        term: What the row adds to the digest; 0 = it is gone.

    """

    table: str
    key: bytes
    revision: int
    term: int


def explain_digest(
    logged: tuple[int, int], computed: tuple[int, int], before: Iterable[Version], changes: Sequence[Version]
) -> Version | None:
    """Return the one change that, had it not been applied, would make the digest the logged one; None = none would.

    Args:
        logged: Digest and row count of the leader.
        computed: Of the fold.
        before: Each row of which there is a change, as it was at the last checkpoint that agrees.
        changes: What came since, in the order of the log.

    """
    wanted = ((logged[0] - computed[0]) % DIGEST_MODULUS, logged[1] - computed[1])
    versions: dict[tuple[str, bytes], list[Version]] = {}
    for one in (*before, *changes):
        versions.setdefault((one.table, one.key), []).append(one)
    for (table, key), history in versions.items():
        last = history[-1]
        # As it was before the last change, or never there at all.
        for other in (*reversed(history[:-1]), Version(table, key, 0, 0)):
            difference = (other.term - last.term) % DIGEST_MODULUS, (other.term > 0) - (last.term > 0)
            if difference == wanted:
                return last
    return None
