"""Ledgers that were created for a log and never put into its chain: their leader stopped in between.

Nobody deletes a ledger of its own: the chain write that names it may still arrive. A later leader may, judged by the
chain as its own claim or a later write of its own produced it: the version that an earlier leader's write names is
gone by then, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from rsm_spark.core.chain import LogChain

_LOG = "rsm_log"
_LOG_ID = "rsm_log_id"
_LEADER_EPOCH = "rsm_leader_epoch"
_DIGITS_MAX = 19
_PREVIOUS = "rsm_previous_ledger"
_CONTENT = "rsm_content"
KEY_ID_OF_LEDGER = "rsm_key_id"
"""Key of a ledger's custom metadata: the log's key that its password is of."""


def custom_metadata(
    log_name: str, log_id: str, leader_epoch: int, previous_ledger_id: int, key_id: str = ""
) -> dict[str, bytes]:
    """Return what a ledger says of itself: whose it is, and of which key, long before any chain names it."""
    custom = {
        _LOG: log_name.encode(),
        _LOG_ID: log_id.encode(),
        _LEADER_EPOCH: str(leader_epoch).encode(),
        _PREVIOUS: str(previous_ledger_id).encode(),
    }
    if key_id:
        custom[KEY_ID_OF_LEDGER] = key_id.encode()
    return custom


def copy_metadata(log_name: str, log_id: str, key_id: str) -> dict[str, bytes]:
    """Return what a copy of a shared ledger says of itself. It names no epoch: no leader may take it for an orphan."""
    custom = custom_metadata(log_name, log_id, 0, -1, key_id)
    del custom[_LEADER_EPOCH], custom[_PREVIOUS]
    return custom


def content_metadata(log_name: str, log_id: str, number: int) -> dict[str, bytes]:
    """Return what a ledger says that holds a content for a log, and none of its entries. It names no epoch, as a copy.

    Args:
        log_name: Of the log.
        log_id: Its id.
        number: Under which the log knows the content; only its machine knows what that is.

    """
    return {_LOG: log_name.encode(), _LOG_ID: log_id.encode(), _CONTENT: b"%d" % number}


def content_number(custom: Mapping[str, bytes]) -> int | None:
    """Return the number under which a log knows the content of a ledger; None = it holds none."""
    number = custom.get(_CONTENT, b"")
    return int(number) if number.isdigit() and len(number) <= _DIGITS_MAX else None


def maker_of(custom: Mapping[str, bytes]) -> str:
    """Return the id of the log that made a ledger; "" = the ledger does not say, as those of other applications."""
    return custom.get(_LOG_ID, b"").decode(errors="replace")


def is_orphan(ledger_id: int, custom: Mapping[str, bytes], chain: LogChain, leader_epoch: int) -> bool:
    """Return whether a leader may delete a ledger that it found.

    Args:
        ledger_id: The ledger.
        custom: Of its metadata.
        chain: As held by the leader: produced by its own claim or a later write of its own.
        leader_epoch: The leader's.

    """
    if maker_of(custom) != chain.log_id:
        return False
    epoch = custom.get(_LEADER_EPOCH, b"")
    if not epoch.isdigit() or int(epoch) >= leader_epoch:
        return False
    return ledger_id not in chain.deleting and all(ledger.ledger_id != ledger_id for ledger in chain.ledgers)
