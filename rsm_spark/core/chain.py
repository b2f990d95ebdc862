"""The log chain: which ledgers make up a log, in order, and who leads it. One znode per log, written only by CAS.

* `ChainTooLargeError`   a `LogError`: one more ledger, and the metadata store would refuse the znode
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec

from ledger.decoding import json_decoder
from rsm_spark.errors import CorruptLogError, LogError

CHAIN_FORMAT = 1

CHAIN_BYTES_MAX = 1_000_000
"""A ZooKeeper server takes 1,048,575 bytes a request unless `jute.maxbuffer` says otherwise. A ledger is some 90
bytes of a long chain: room for more than 10,000."""

_PLAIN_BYTES_MAX = 16_384
_INFLATED_BYTES_MAX = 1 << 25
"""More than any chain: ZooKeeper keeps 1 MiB in a node, and a chain deflates to a third of its JSON."""
_DEFLATE_LEVEL = 1

DEFAULT_RSM_ROOT = "/rsm"


class ChainTooLargeError(LogError):
    """One more ledger, and the metadata store would refuse the chain."""


class ClosedEnd(msgspec.Struct, frozen=True):
    """End of a ledger, known once its own metadata says CLOSED.

    Attributes:
        last_entry_id: Inclusive; -1 if it closed empty.
        last_revision: Revision of its last record; that of the ledger before if it holds none.
        last_entry_ms: Logged time of its last entry; of the ledger before if empty.
        length: Payload bytes.
        prefix_hash: Hash after its last entry, hex.

    """

    last_entry_id: int
    last_revision: int
    last_entry_ms: int
    length: int
    prefix_hash: str


class ChainLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger of the chain; `closed` is None for the last one while it is written, or not yet known to be closed.

    Its password comes from the log's key `key_id`, and every entry of it is sealed; "" = from before the log had a key.
    `log_id` is that of the log that made it, and that the password is of; "" = this one. A ledger of another log may go
    on behind `closed`: that is not of this log. `copy_of` names the ledgers whose place it took, the oldest first: it
    has their entries under the same numbers, and who stood in one of them goes on here.
    """

    ledger_id: int
    created_ms: int
    leader_epoch: int
    first_revision: int
    closed: ClosedEnd | None = None
    key_id: str = ""
    log_id: str = ""
    copy_of: tuple[int, ...] = ()


class Leadership(msgspec.Struct, frozen=True):
    """Claim of a replica on the log.

    Attributes:
        replica_id: Stable name of the replica.
        incarnation: 32 hex digits, drawn anew by each process: a restarted replica is somebody else.

    """

    replica_id: str
    incarnation: str


class LogOrigin(msgspec.Struct, frozen=True):
    """Another log that a log goes on from: its entries up to a revision are that log's, byte for byte.

    Attributes:
        log: Name of that log, as it was.
        log_id: Its uuid, 32 hex digits: the entries up to `revision` bear it, and their seals are made with it.
        revision: Of the last record that is taken over. Always the end of an entry, and of a ledger of this chain.
        prefix_hash: Hash after that entry, hex.
        made_ms: Wall clock when this log was made of it.
        by: Who made it.
        source: Where the entries came from, such as the place of a backup.

    """

    log: str
    log_id: str
    revision: int
    prefix_hash: str
    made_ms: int
    by: str
    source: str


class Ancestry(NamedTuple):
    """Ids of a log and of the logs that it goes on from.

    Attributes:
        log_id: Of the log itself, 16 bytes.
        origins: (last revision, log id) of each log before it, oldest first.

    """

    log_id: bytes
    origins: tuple[tuple[int, bytes], ...] = ()

    def at(self, first_revision: int) -> bytes:
        """Return the id that an entry bears, given the revision that it begins with."""
        for last_revision, log_id in self.origins:
            if first_revision <= last_revision:
                return log_id
        return self.log_id

    @property
    def root(self) -> bytes:
        """Id from which the hash of the first entry begins."""
        return self.at(1)


class QuarantinedEntry(msgspec.Struct, frozen=True):
    """An entry of a closed ledger that no leader wrote: whoever reads the log passes over it.

    Attributes:
        ledger_id, entry_id: Where it lies.
        sha256: Of its payload, hex: this entry is passed over, no other one at its place.
        length: Bytes of its payload.
        at_ms: Wall clock when it was set aside.
        by: Who did, as the command found out.
        reason: Why, in the operator's words.
        epoch: To which the chain was raised by it: a leader that finds no entry of this epoch or a later one in the log
            logs who did it. 0 = by a version that did not say.
        zookeeper: Who did at the metadata store; "" = nobody logs in there.

    """

    ledger_id: int
    entry_id: int
    sha256: str
    length: int
    at_ms: int
    by: str
    reason: str
    epoch: int = 0
    zookeeper: str = ""


class LogChain(msgspec.Struct, frozen=True):
    """Everything that the znode of a log says.

    Attributes:
        log_id: uuid, 32 hex digits.
        first_ledger_id: Very first ledger that the log ever used; -1 until there is one. The log can be replayed from
            empty only while `ledgers` begins with it.
        leader_epoch: Raised by every claim; 0 before the first.
        leader: Who claimed it last.
        ledgers: Oldest first. Only the last may be open.
        deleting: Ids that left the chain and are being deleted.
        format: Of this znode.
        format_level: Highest record format that writers may use.
        password_mark: Tells whether a ledger password is that of this log, not what it is (see
            `rsm_spark.core.admission`); "" until the first leader has claimed the log.
        origins: Logs that this one goes on from, oldest first.
        key_id: Of the key that the next ledger is of; "" = the log has no key.
        quarantined: Entries that are passed over.
        unfinished: Who is making this log of another one; "" = it is made. Nobody takes part in it before.

    """

    log_id: str
    first_ledger_id: int = -1
    leader_epoch: int = 0
    leader: Leadership | None = None
    ledgers: tuple[ChainLedger, ...] = ()
    deleting: tuple[int, ...] = ()
    format: int = CHAIN_FORMAT
    format_level: int = 1
    password_mark: str = ""
    origins: tuple[LogOrigin, ...] = ()
    key_id: str = ""
    quarantined: tuple[QuarantinedEntry, ...] = ()
    unfinished: str = ""

    @property
    def ancestry(self) -> Ancestry:
        """The ids that its entries bear."""
        origins = tuple((one.revision, bytes.fromhex(one.log_id)) for one in self.origins)
        return Ancestry(bytes.fromhex(self.log_id), origins)

    @property
    def is_whole(self) -> bool:
        """True if it can be read from the first record on: it still begins with its first ledger."""
        return not self.ledgers or self.ledgers[0].ledger_id == self.first_ledger_id

    @property
    def moved(self) -> dict[int, int]:
        """Ledgers whose place a copy has taken, and the copy of each."""
        return {before: ledger.ledger_id for ledger in self.ledgers for before in ledger.copy_of}

    def has(self, ledger_id: int) -> bool:
        """Return whether the chain names a ledger, or a copy of it."""
        return any(ledger_id == ledger.ledger_id or ledger_id in ledger.copy_of for ledger in self.ledgers)


def encode_chain(chain: LogChain) -> bytes:
    """Return the znode's bytes; equal chains have equal bytes.

    JSON that anybody can look at; above `_PLAIN_BYTES_MAX` the same JSON deflated. ZooKeeper keeps the last 500 writes
    in memory, and every roll is one: 2,000 ledgers are 580 KB as JSON, 180 KB deflated.
    """
    plain = msgspec.json.encode(chain)
    return plain if len(plain) <= _PLAIN_BYTES_MAX else zlib.compress(plain, _DEFLATE_LEVEL)


def _inflated(value: bytes, log_name: str) -> bytes:
    """Return the JSON of a deflated chain; never more than a chain can have, whatever the bytes claim."""
    inflating = zlib.decompressobj()
    plain = inflating.decompress(value, _INFLATED_BYTES_MAX)
    if not inflating.eof or inflating.unused_data:
        raise CorruptLogError(
            f"log {log_name}: its znode holds no chain: it is cut short, or inflates beyond {_INFLATED_BYTES_MAX} bytes"
        )
    return plain


def check_chain_size(value: bytes, ledger_count: int, bytes_max: int, *, log_name: str) -> None:
    """Refuse a chain that has grown too long to be written.

    Raises:
        ChainTooLargeError: It has more than `bytes_max` bytes.

    """
    if len(value) > bytes_max:
        raise ChainTooLargeError(
            f"log {log_name}: a chain of {ledger_count} ledgers has {len(value):,} bytes, the metadata store takes "
            f"{bytes_max:,}: set chain_bytes_max and jute.maxbuffer of every ZooKeeper server and client higher, then "
            "find out why nothing is trimmed (rsm log trim --dry-run)"
        )


def decode_chain(value: bytes, *, log_name: str) -> LogChain:
    """Read a znode.

    Raises:
        CorruptLogError: It holds no chain, or one of a format that this version cannot read.

    """
    try:
        plain = value if value.startswith(b"{") else _inflated(value, log_name)
        chain = json_decoder(LogChain).decode(plain)
    except (msgspec.MsgspecError, zlib.error) as error:
        raise CorruptLogError(f"log {log_name}: its znode holds no chain: {error}") from error
    if chain.format != CHAIN_FORMAT:
        raise CorruptLogError(
            f"log {log_name}: its chain has format {chain.format}, this version reads {CHAIN_FORMAT}: upgrade"
        )
    return chain


def log_id_of(ledger: ChainLedger, chain: LogChain) -> str:
    """Return the id of the log that made a ledger of a chain."""
    return ledger.log_id or chain.log_id


def last_entry_of(ledger: ChainLedger, closed_at: int) -> int:
    """Return the last entry of a closed ledger that is of the log whose chain names it.

    Args:
        ledger: As the chain names it.
        closed_at: Last entry, as the ledger's own metadata say.

    """
    return ledger.closed.last_entry_id if ledger.log_id and ledger.closed is not None else closed_at


def chain_path(log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the znode of a log's chain."""
    return f"{rsm_root}/logs/{log_name}"


def service_path(log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the znode under which the replicas of a log advertise and elect."""
    return f"{rsm_root}/services/{log_name}"


def members_path(log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the parent of the replicas' ephemeral nodes, `<replica id>` -> JSON `Member`."""
    return f"{service_path(log_name, rsm_root)}/members"
