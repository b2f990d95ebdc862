"""May this process take part in a log? Judged by the log's chain, before it applies or writes anything.

* `AdmissionError`               a `LogError`: this process must not take part in this log as it is
    * `FormatLevelError`         the log may hold records that this version does not know
    * `LedgerPasswordError`      the ledgers of the log have another password than this process was given
    * `LogKeyError`              the log has a key that this process was not given, or it has lost the one it had

A replica that cannot read the log, or could not recover its last ledger, finds out when it starts, not at a failover.
So does one whose state is of another log that had the same name (`ForkedLogError`): the metadata were lost or replaced
under it, and ledger ids may have begun again, so that its place in the old log looks like one in the new.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from rsm_spark.core.chain import LogChain
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.errors import ForkedLogError, LogError

_NO_PASSWORD = "none"  # noqa: S105 # the mark of logs whose ledgers have none
_SCHEME = "scrypt"
# 8 MiB and some 25 ms: guessing costs as much each time; a replica pays it once.
_COST_N, _COST_R, _COST_P, _HASH_BYTES = 2**13, 8, 1, 16


class AdmissionError(LogError):
    """A process must not take part in a log as it is."""


class FormatLevelError(AdmissionError):
    """The log's format level is above what this version knows."""


class LedgerPasswordError(AdmissionError):
    """The ledger password of this process is not that of the log."""


class LogKeyError(AdmissionError):
    """The log's key is not among those of this process; or the chain denies a key that the state knows of."""


def password_mark(password: bytes, log_id: str) -> str:
    """Return what the chain keeps of the ledger password: a hash, salted with the log's id.

    It takes some 25 ms: call it once, and not on an event loop.

    Args:
        password: Of the ledgers; may be empty.
        log_id: 32 hex digits, drawn at random for each log.

    """
    if not password:
        return _NO_PASSWORD
    salt = bytes.fromhex(log_id)
    hashed = hashlib.scrypt(password, salt=salt, n=_COST_N, r=_COST_R, p=_COST_P, dklen=_HASH_BYTES)
    return f"{_SCHEME}:{hashed.hex()}"


def check_admission(
    chain: LogChain,
    *,
    log_name: str,
    format_level: int,
    mark: str,
    log_id: str = "",
    key_ids: Sequence[str] = (),
    is_sealed: bool = False,
) -> None:
    """Refuse what must not take part.

    Args:
        chain: As read.
        log_name: For errors.
        format_level: Highest that this process knows.
        mark: `password_mark` of its ledger password; "" = it does not take part, it only reads the chain.
        log_id: Of the log that its state is of, 32 hex digits; "" = it has no state yet.
        key_ids: Keys that it was given.
        is_sealed: The last entry of its state was sealed.

    Raises:
        AdmissionError: The log is still being made.
        ForkedLogError: The chain is that of another log than the state.
        FormatLevelError: See there.
        LedgerPasswordError, LogKeyError: See there.

    """
    if chain.unfinished:
        raise AdmissionError(
            f"log {log_name}: {chain.unfinished} is making it of another log: start the replica when that is done. If "
            f"the command was killed: rsm log delete {log_name}, then make it again"
        )
    if log_id and chain.log_id != log_id:
        raise ForkedLogError(
            f"log {log_name}: the state of this process is of log {log_id}, the metadata store has log {chain.log_id} "
            "under this name: its data were lost or replaced. Check the metadata URI; to serve the present log start "
            "with an empty data directory"
        )
    check_level(chain, log_name, format_level)
    if mark:
        _check_key(chain, log_name, key_ids, is_sealed=is_sealed)
    if chain.key_id and all(ledger.key_id for ledger in chain.ledgers):
        return  # No ledger is left that the password is of.
    if mark and chain.password_mark and not hmac.compare_digest(mark.encode(), chain.password_mark.encode()):
        lacking = "this process was given none" if mark == _NO_PASSWORD else "this process was given another one"
        has = "have no password" if chain.password_mark == _NO_PASSWORD else "have a password"
        raise LedgerPasswordError(
            f"log {log_name}: its ledgers {has}, {lacking}: it could not take the log over. Give every replica the "
            "same ledger password"
        )


def check_level(chain: LogChain, log_name: str, format_level: int = FORMAT_LEVEL) -> None:
    """Refuse a log that may hold what this version does not know: a copy could lack something.

    Raises:
        FormatLevelError: Its level is above the one that is known.

    """
    if chain.format_level > format_level:
        raise FormatLevelError(
            f"log {log_name}: it has format level {chain.format_level}, this version knows up to {format_level}: "
            "start a newer version; a level once raised is never lowered"
        )


def _check_key(chain: LogChain, log_name: str, key_ids: Sequence[str], *, is_sealed: bool) -> None:
    if is_sealed and not chain.key_id:
        raise LogKeyError(
            f"log {log_name}: the state of this process comes from sealed entries, the chain says that the log has no "
            "key: somebody has changed the chain. Find out who may write to the metadata store"
        )
    wanted = {chain.key_id, *(ledger.key_id for ledger in chain.ledgers)} - {""}
    lacking = sorted(wanted.difference(key_ids))
    if lacking:
        has = f"its file has {', '.join(key_ids)}" if key_ids else "it was given none"
        raise LogKeyError(
            f"log {log_name}: this process lacks the log's key {', '.join(lacking)}, {has}: give it the key file of "
            "the other replicas (--log-key FILE)"
        )
