"""Events that leadership is told (past participles), and effects that it asks for (imperatives)."""

from __future__ import annotations

import msgspec

from rsm_spark.core.batching import Batch
from rsm_spark.core.chain import LogChain
from rsm_spark.core.detaching import LedgerCopy
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import StateTip


class ElectionWon(msgspec.Struct, frozen=True):
    """The election says that this replica may try to lead; rightly or not."""


class ChainRead(msgspec.Struct, frozen=True):
    """The chain as it is, read after `sync`."""

    value: bytes
    version: int


class ChainWritten(msgspec.Struct, frozen=True):
    """The chain write was acknowledged; `version` is what it produced."""

    version: int


class ChainWriteFailed(msgspec.Struct, frozen=True):
    """The chain write was refused for its version, or no reply came: it may have arrived, or still arrive."""


class LedgerRecovered(msgspec.Struct, frozen=True):
    """The chain's last ledger is CLOSED; `last_entry_id` is what its metadata say, whoever wrote them."""

    ledger_id: int
    last_entry_id: int
    length: int


class LedgerGone(msgspec.Struct, frozen=True):
    """A ledger that the held chain names does not exist."""

    ledger_id: int


class Replayed(msgspec.Struct, frozen=True):
    """The state is at the end of the chain's last ledger."""

    tip: StateTip
    position: LogPosition | None


class LedgerCreated(msgspec.Struct, frozen=True):
    """There is a new ledger, in nobody's chain yet."""

    ledger_id: int
    created_ms: int


class BatchComposed(msgspec.Struct, frozen=True):
    """Requests were decided and applied to the live state; they wait for this entry."""

    batch: Batch


class RollDue(msgspec.Struct, frozen=True):
    """The ledger is big or old enough; nothing is in flight."""


class TrimDue(msgspec.Struct, frozen=True):
    """These ledgers, a prefix of the held chain, may go; nothing is in flight."""

    ledger_ids: tuple[int, ...]


class LedgersDeleted(msgspec.Struct, frozen=True):
    """Ledgers that the chain names as being deleted do not exist any more; nothing is in flight."""

    ledger_ids: tuple[int, ...]


class DetachDue(msgspec.Struct, frozen=True):
    """These copies hold what the log has of shared ledgers, and are closed; nothing is in flight."""

    copies: tuple[LedgerCopy, ...]


class FormatRaiseDue(msgspec.Struct, frozen=True):
    """FORMAT_RAISED is confirmed, every live replica knows the level; nothing is in flight."""

    level: int


class KeyAdoptDue(msgspec.Struct, frozen=True):
    """The log is to have a key from now on: every live replica has it; nothing is in flight."""


class EntryConfirmed(msgspec.Struct, frozen=True):
    """The entry that was appended is acknowledged."""

    entry_id: int


class AddFailed(msgspec.Struct, frozen=True):
    """The append failed, for whatever reason: the entry may or may not be stored."""


class LedgerEndLearned(msgspec.Struct, frozen=True):
    """The own ledger is CLOSED; `last_entry_id` is what its metadata say, whoever wrote them."""

    last_entry_id: int
    length: int


class Resigned(msgspec.Struct, frozen=True):
    """The session with the metadata store is lost, or the replica stops."""

    reason: str


class ReadChain(msgspec.Struct, frozen=True):
    """Sync, read the chain."""


class WriteChain(msgspec.Struct, frozen=True):
    """Compare-and-set the chain."""

    value: bytes
    held_version: int


class RecoverLedger(msgspec.Struct, frozen=True):
    """Open with recovery: fence, find the end, close; or take the end of a CLOSED one."""

    ledger_id: int


class ReplayLog(msgspec.Struct, frozen=True):
    """Apply all that the state lacks, to the end of the chain's last ledger."""

    chain: LogChain


class CreateLedger(msgspec.Struct, frozen=True):
    """Create a ledger that names the log, the epoch and the ledger before in its custom metadata; `key_id`: its key."""

    log_id: str
    leader_epoch: int
    previous_ledger_id: int
    key_id: str = ""


class BeginLeadership(msgspec.Struct, frozen=True):
    """Compose the first entry of this leadership: LeaderStarted, a batch of its own."""

    leader_epoch: int


class AppendEntry(msgspec.Struct, frozen=True):
    """Append to the own ledger."""

    ledger_id: int
    payload: bytes


class CloseOwnLedger(msgspec.Struct, frozen=True):
    """Close the own ledger and learn its end: by CAS; IN_RECOVERY: recover like anybody else; CLOSED: adopt."""

    ledger_id: int


class DeleteLedgers(msgspec.Struct, frozen=True):
    """Delete ledgers that have left the chain, in the background, however often it takes; then `LedgersDeleted`."""

    ledger_ids: tuple[int, ...]


class AnswerBatch(msgspec.Struct, frozen=True):
    """The batch is committed: its answers leave, its records show."""

    batch: Batch
    tip: StateTip
    position: LogPosition


class DropBatch(msgspec.Struct, frozen=True):
    """The batch is not confirmed by this replica; `applied_never`: nor by anybody, it is certainly not applied."""

    batch: Batch
    applied_never: bool


class StepDown(msgspec.Struct, frozen=True):
    """Follow from now on.

    Attributes:
        reason: For the log.
        deposed: The chain names somebody else.
        rebuild: The live state holds what was not confirmed: throw it away.

    """

    reason: str
    deposed: bool
    rebuild: bool


class Halt(msgspec.Struct, frozen=True):
    """Stop the replica: the log is damaged."""

    reason: str


Event = (
    ElectionWon
    | ChainRead
    | ChainWritten
    | ChainWriteFailed
    | LedgerRecovered
    | LedgerGone
    | Replayed
    | LedgerCreated
    | BatchComposed
    | RollDue
    | TrimDue
    | LedgersDeleted
    | DetachDue
    | FormatRaiseDue
    | KeyAdoptDue
    | EntryConfirmed
    | AddFailed
    | LedgerEndLearned
    | Resigned
)

Effect = (
    ReadChain
    | WriteChain
    | RecoverLedger
    | ReplayLog
    | CreateLedger
    | BeginLeadership
    | AppendEntry
    | CloseOwnLedger
    | DeleteLedgers
    | AnswerBatch
    | DropBatch
    | StepDown
    | Halt
)
