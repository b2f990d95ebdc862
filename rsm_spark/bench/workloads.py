"""YCSB's core workloads A to D, on a map of whole records.

    a   update heavy   50 % reads, 50 % updates     zipfian     a session store
    b   read mostly    95 % reads, 5 % updates      zipfian     tags of photos
    c   read only      100 % reads                  zipfian     profiles
    d   read latest    95 % reads, 5 % inserts      latest      status updates

A record is one value, ten fields of 100 bytes, as YCSB's; an update writes the record whole (`writeallfields=true`).
Keys are `user` and a hash of the record's number, so that they do not arrive in order.
"""

from __future__ import annotations

import enum
import random
from typing import NamedTuple

from rsm_spark.bench.distributions import KeyChooser, Latest, RecordNumbers, ScrambledZipfian, fnv64

RECORD_BYTES = 1_000
"""YCSB's ten fields of a hundred bytes."""

_LETTERS = bytes(range(0x21, 0x7F))


class StepKind(enum.StrEnum):
    """One operation of a workload."""

    READ = "read"
    UPDATE = "update"
    INSERT = "insert"


class Step(NamedTuple):
    """Next operation, and the number of its record."""

    kind: StepKind
    number: int


class Workload(NamedTuple):
    """Shares of operations, and which records they meet.

    Attributes:
        name: One letter.
        update_share: 0..1.
        insert_share: 0..1; the rest are reads.
        is_latest: Records inserted last are popular, else scattered ones.

    """

    name: str
    update_share: float = 0.0
    insert_share: float = 0.0
    is_latest: bool = False

    def chooser(self, numbers: RecordNumbers, operation_count: int) -> KeyChooser:
        """Return what chooses records for a run of so many operations."""
        if self.is_latest:
            return Latest(numbers)
        inserts = int(operation_count * self.insert_share * 2)  # YCSB's allowance for chance.
        return ScrambledZipfian(numbers, numbers.inserted_count + inserts)

    def next_step(self, rng: random.Random, chooser: KeyChooser, numbers: RecordNumbers) -> Step:
        """Return the next operation; an insert takes a new number."""
        share = rng.random()
        if share < self.insert_share:
            return Step(StepKind.INSERT, numbers.take())
        kind = StepKind.UPDATE if share < self.insert_share + self.update_share else StepKind.READ
        return Step(kind, chooser.choose(rng))


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("a", update_share=0.5),
        Workload("b", update_share=0.05),
        Workload("c"),
        Workload("d", insert_share=0.05, is_latest=True),
    )
}


def key_of(number: int) -> bytes:
    """Return the key of a record."""
    return b"user%d" % fnv64(number)


def value_of(rng: random.Random, size: int = RECORD_BYTES) -> bytes:
    """Return a record of printable bytes that do not compress well."""
    return bytes(rng.choices(_LETTERS, k=size))
