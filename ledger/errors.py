"""Errors of the ledger service.

* `LedgerError`                      anything raised on purpose by this package
    * `UsageError`                   the caller broke a rule of this API; retrying cannot help
        * `EntryTooLargeError`       the payload does not fit one frame
        * `LedgerExistsError`        a ledger of this id exists already; nothing was changed
        * `WrongPasswordError`       the master key is not the ledger's; nothing was changed or fenced
    * `FencedError`                  another client recovered the ledger; this writer must stop for good
    * `LedgerClosedError`            the handle or the ledger is closed: no more appends
    * `NoSuchClusterError`           nobody has set up a BookKeeper cluster under this root of the metadata
    * `NoSuchLedgerError`            the ledger does not exist (in the metadata, or on this bookie)
    * `NoSuchEntryError`             the bookie *knows* that it never stored the entry
    * `DigestError`                  every replica that answered sent bytes that fail the digest
    * `CorruptMetadataError`         a metadata node holds what this version cannot read; it is not written over
    * `CorruptStorageError`          a file of a bookie is damaged where it was once synced
    * `CookieMismatchError`          the disks or the address are not those that this bookie id had
    * `RemoteProtocolError`          the peer sent bytes that the protocol does not allow
    * `TlsError`                     no encrypted connection: one end does not accept the other
    * `LoginError`                   the bookie does not let this client in, or cannot prove who it is
    * `RetryableError`               the same call may succeed later
        * `QuorumLostError`          fewer bookies answer than the quorum needs
        * `NotEnoughBookiesError`    fewer writable bookies than the ledger asks for
        * `BookieUnavailableError`   no answer from this bookie in time
    * `MetadataError`                anything that the metadata store answered
        * `NoNodeError`, `NodeExistsError`, `BadVersionError`   a definite no; nothing was changed
        * `MetadataDeniedError`      the log-in may not read or write the node; nothing was changed
        * `MetadataUnavailableError` no reply: the write may or may not have been applied
        * `MetadataSessionLostError` the session is gone, with its ephemeral nodes
"""

from __future__ import annotations

__all__ = [
    "BadVersionError",
    "BookieUnavailableError",
    "CookieMismatchError",
    "CorruptMetadataError",
    "CorruptStorageError",
    "DigestError",
    "EntryTooLargeError",
    "FencedError",
    "LedgerClosedError",
    "LedgerError",
    "LedgerExistsError",
    "LoginError",
    "MetadataDeniedError",
    "MetadataError",
    "MetadataSessionLostError",
    "MetadataUnavailableError",
    "NoNodeError",
    "NoSuchClusterError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NodeExistsError",
    "NotEnoughBookiesError",
    "QuorumLostError",
    "RemoteProtocolError",
    "RetryableError",
    "TlsError",
    "UsageError",
    "WrongPasswordError",
]


class LedgerError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        ledger_id: The ledger concerned, if any.

    """

    def __init__(self, message: str, *, ledger_id: int | None = None) -> None:
        super().__init__(message)
        self.ledger_id = ledger_id


class UsageError(LedgerError):
    """The caller broke a rule of this API; retrying cannot help."""


class EntryTooLargeError(UsageError):
    """The payload does not fit one frame."""


class LedgerExistsError(UsageError):
    """A ledger of this id exists already; nothing was changed."""


class WrongPasswordError(UsageError):
    """The master key is not the ledger's; nothing was changed or fenced."""


class FencedError(LedgerError):
    """Another client recovered the ledger: never retry, stop for good."""


class LedgerClosedError(LedgerError):
    """The handle or the ledger is closed: no more appends."""


class NoSuchLedgerError(LedgerError):
    """The ledger does not exist, in the metadata or on this bookie."""


class NoSuchClusterError(LedgerError):
    """Nobody has set up a BookKeeper cluster under this root of the metadata."""


class NoSuchEntryError(LedgerError):
    """The bookie answers for sure that it does not hold the entry."""


class DigestError(LedgerError):
    """Every replica that answered sent bytes that fail the digest."""


class CorruptMetadataError(LedgerError):
    """A metadata node holds what this version cannot read; it is not written over."""


class CorruptStorageError(LedgerError):
    """A file of a bookie is damaged where it was once synced."""


class CookieMismatchError(LedgerError):
    """The disks or the address are not those that this bookie id had."""


class RemoteProtocolError(LedgerError):
    """The peer sent bytes that the protocol does not allow."""


class TlsError(LedgerError):
    """No encrypted connection: TLS is switched off there, or one end does not accept the other's certificate."""


class LoginError(LedgerError):
    """A log-in failed: the bookie does not let this client in, asks for another kind, or cannot prove who it is."""


class RetryableError(LedgerError):
    """The same call may succeed later."""


class QuorumLostError(RetryableError):
    """Fewer bookies answer than the quorum needs."""


class NotEnoughBookiesError(RetryableError):
    """Fewer writable bookies are registered than the ledger asks for."""


class BookieUnavailableError(RetryableError):
    """No connection to the bookie, or no answer in time."""


class MetadataError(LedgerError):
    """Anything that the metadata store answered."""


class NoNodeError(MetadataError):
    """The node does not exist."""


class NodeExistsError(MetadataError):
    """The node exists already."""


class BadVersionError(MetadataError):
    """The node has another version than the write expected; nothing was changed."""


class MetadataDeniedError(MetadataError):
    """The log-in at the metadata store may not read or write the node; nothing was changed."""


class MetadataUnavailableError(MetadataError):
    """No reply from the metadata store: the operation may or may not have been applied."""


class MetadataSessionLostError(MetadataError):
    """The session with the metadata store is gone, and its ephemeral nodes with it."""
