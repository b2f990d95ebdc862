"""Commands of the map's clients, and their replies; `rsm_spark.map.messages` has the bytes."""

from __future__ import annotations

from typing import Literal

import msgspec


class Put(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Write the value of a key, whether it exists or not; it then lives until it is deleted."""

    key: bytes
    value: bytes


class Delete(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    key: bytes


class CompareAndSet(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """Write or delete a key only if it is as expected.

    Attributes:
        key: The key.
        expected: Its value, or its mod revision, or None: it does not exist.
        value: The new value; None deletes.

    """

    key: bytes
    expected: bytes | int | None
    value: bytes | None


class Increment(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Add to the integer of a key (decimal digits, 64 bits); a key that does not exist counts as 0.

    How long the key lives stays as it is.
    """

    key: bytes
    amount: int = 1


class GrantLease(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    """Begin a lease: keys attached to it go when nobody has kept it for `ttl_ms`.

    Attributes:
        ttl_ms: Its full time.
        lease: Number that it is to have; 0 = any that is free. Replicas of version 0.1 give it one of their own.

    """

    ttl_ms: int
    lease: int = 0


class KeepLease(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """Give a lease its full time again."""

    lease: int


class RevokeLease(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """End a lease now, and remove the keys attached to it."""

    lease: int


class PutExpiring(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """Write a key that goes by itself.

    Attributes:
        key: The key.
        value: Its value.
        ttl_ms: Logged time that it lives; 0 = as long as the lease.
        lease: That it is attached to; 0 = none. One of the two is given.

    """

    key: bytes
    value: bytes
    ttl_ms: int
    lease: int = 0


class DeleteRange(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """Remove all keys with start <= key < end; an end of None is behind the last."""

    start: bytes
    end: bytes | None


class Read(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    """Within a transaction: tell the value of a key, as the operations before have left it."""

    key: bytes


Compared = Literal["value", "revision", "create_revision", "version", "exists"]


class Compare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A condition of a transaction.

    Attributes:
        key: The key.
        what: Its `value`, its mod `revision`, its `create_revision` or its `version` (0 = it does not exist), or
            whether it `exists`.
        relation: That must hold between it and the operand; values are compared as bytes. A key that does not exist
            has no value: no relation holds for it.
        operand: bytes, int or bool.

    """

    key: bytes
    what: Compared
    relation: Literal["=", "!=", "<", ">"]
    operand: bool | int | bytes

    @property
    def fault(self) -> str | None:
        """Fault of the command in words, or None."""
        wanted: type = {"value": bytes, "exists": bool}.get(self.what, int)
        if type(self.operand) is not wanted:
            return f"a comparison of {self.what} needs {wanted.__name__}, not {type(self.operand).__name__}"
        if self.what == "exists" and self.relation not in {"=", "!="}:
            return f"that a key exists is compared by = or !=, not by {self.relation}"
        return None


Operation = Put | PutExpiring | Delete | DeleteRange | Increment | Read
"""Operations that a transaction may contain."""


class MapTransaction(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """If all comparisons hold, do the one thing, else the other; all of it or nothing, with nothing in between.

    Attributes:
        compares: All must hold; none holds always.
        then: Operations if they do, in order; each sees what those before it did.
        orelse: Operations if they do not.

    """

    compares: list[Compare]
    then: list[Operation]
    orelse: list[Operation]


class WriteKey(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=14):
    """Within a branch: write a key.

    Attributes:
        key: The key.
        value: None = the one that it has.
        lease: That it is attached to from now on; 0 = none; None = what it has.

    """

    key: bytes
    value: bytes | None
    lease: int | None


class CompareRange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A condition on every key with start <= key < end; of a range without keys, on one that does not exist.

    Attributes:
        start: First key.
        end: Exclusive; None = behind the last.
        what: As in `Compare`, or the `lease` of a key. A key that does not exist has 0 of each, and no value: none of
            its relations holds.
        relation: As in `Compare`.
        operand: bytes or int.

    """

    start: bytes
    end: bytes | None
    what: Literal["value", "revision", "create_revision", "version", "lease"]
    relation: Literal["=", "!=", "<", ">"]
    operand: int | bytes

    @property
    def fault(self) -> str | None:
        """Fault of the command in words, or None."""
        wanted: type = bytes if self.what == "value" else int
        if type(self.operand) is not wanted:
            return f"a comparison of {self.what} needs {wanted.__name__}, not {type(self.operand).__name__}"
        return None


class Branch(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    """A transaction that may hold others: conditions of all of them are judged before the first operation.

    Attributes:
        compares: All must hold; none holds always.
        then: Operations if they do, in order.
        orelse: Operations if they do not.

    """

    compares: list[CompareRange]
    then: list[WriteKey | DeleteRange | Branch]
    orelse: list[WriteKey | DeleteRange | Branch]


class CompactHistory(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=13):
    """Forget how the map was below a revision."""

    revision: int


AlarmKind = Literal["nospace", "corrupt"]


class SetAlarm(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=16):
    """Raise an alarm, or end it; clients may not, whoever administers the log does.

    Attributes:
        kind: What it forbids: see `rsm_spark.map.alarms`.
        member: Number of the member that it is about; of 64 bits, with a sign.
        is_raised: False = it ends.

    """

    kind: AlarmKind
    member: int
    is_raised: bool


class RowWrite(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row of `WriteRows`.

    Attributes:
        key: The key.
        value: None = the key is to go.
        ttl_ms: Logged time that it lives; 0 = until it is deleted.
        expected: Empty, or one of what `CompareAndSet` has: a row that is not as expected is in conflict, and is left.

    """

    key: bytes
    value: bytes | None
    ttl_ms: int = 0
    expected: tuple[bytes | int | None, ...] = ()


class WriteRows(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=15):
    """Write many keys in this order, all of them or none; rows in conflict are left, and told.

    Attributes:
        rows: At most `ROW_WRITES_MAX`.
        conflict_prefix: What a row in conflict wanted to write is written under its key behind this prefix; b"" = not.

    """

    rows: list[RowWrite]
    conflict_prefix: bytes = b""


class Written(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """The command was carried out by the record of this revision; 0 if it changed nothing, as expected."""

    revision: int


class NotFound(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """There is no such key, or no such lease."""


class Mismatched(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """The key is not as expected; its mod revision, 0 if there is no such key."""

    revision: int


class MapRefused(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The request breaks a rule of the map, or is none of its requests."""

    reason: str


class Incremented(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """The key holds this integer now, written by the record of this revision."""

    value: int
    revision: int


class Granted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    """The number of the new lease: the revision that granted it."""

    lease: int


class Kept(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """The lease has its full time again."""

    ttl_ms: int


class Removed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """So many keys were removed, by records up to this revision (0 if there were none)."""

    count: int
    revision: int


class Seen(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """Row that a `Read` found; see `KeyValue`."""

    value: bytes
    revision: int
    create_revision: int = 0
    version: int = 0


class WroteRows(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    """Result of `WriteRows`.

    Attributes:
        written: Rows that were put.
        removed: Keys that were removed.
        conflicts: A bit for each row, the first is the lowest of the first byte: it was in conflict; as far as the last
            one that was.

    """

    written: int
    removed: int
    conflicts: bytes

    @property
    def conflict_rows(self) -> list[int]:
        """Rows in conflict, by number from 0."""
        return [at * 8 + bit for at, byte in enumerate(self.conflicts) for bit in range(8) if byte >> bit & 1]


class Branched(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """Result of a `Branch`, or of a `CompactHistory`. What keys held before stands in the history of the map.

    Attributes:
        first: Revision of its first record.
        last: Of its last one: the mod revision of all keys that it wrote.
        taken: Of each transaction that was come to, outer ones first: all comparisons held.

    """

    first: int
    last: int
    taken: list[bool]


Unmet = Literal["no lease", "lease exists", "no key", "compacted", "future"]


class Unfulfilled(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    """Something that the command relies on is not so: nothing was changed.

    Attributes:
        what: Is not so.
        revision: Of the record that says so.

    """

    what: Unmet
    revision: int


OperationResult = Written | NotFound | Removed | Incremented | Seen


class Executed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """Result of a transaction, as the reply holds it.

    Attributes:
        succeeded: All comparisons held: `then` was done, else `orelse`.
        results: Of each operation, in order.

    """

    succeeded: bool
    results: list[OperationResult]


MapCommand = (
    Put | Delete | CompareAndSet | MapTransaction | Increment | GrantLease | KeepLease | RevokeLease | PutExpiring
    | DeleteRange | Branch | CompactHistory | WriteRows | SetAlarm
)  # fmt: skip
MapReply = (
    Written | NotFound | Mismatched | MapRefused | Executed | Incremented | Granted | Kept | Removed | Branched
    | Unfulfilled | WroteRows
)  # fmt: skip
