"""The key of a log and the seal of its entries: who knows the key can tell whether an entry is its log's leader's.

    seal = key id (8 bytes) | HMAC-SHA256(entry key, SHA-256(all of the payload before the MAC))

The payload names log, epoch, revision and the hash of everything before it: a sealed entry fits one place of one log.
The prefix hash covers the seal too and needs no key: content is proven by anybody, authorship by who has the key.

1. Everything is derived from one secret per key id, by HMAC-SHA256 of a label and the log's id: the keys of two logs
   from one file have nothing in common, and neither have entries and ledger passwords.
2. The newest key seals, all of them verify. A key stays in the file as long as an entry or a ledger is of it.
3. A checkpoint is signed besides (Ed25519): who has the public key alone believes the history up to there.

* `ForeignEntryError`       a `CorruptLogError`: an entry of the log's ledgers that its leaders did not write there
    * `UnknownKeyError`     it names a key that this process was not given
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from rsm_spark.core.chain import LogChain, log_id_of
from rsm_spark.core.envelope import KEY_ID_BYTES, SEAL_BYTES, Envelope
from rsm_spark.errors import CorruptLogError

KEYED_LEVEL = 2
"""Format level from which on a log may have a key."""

SECRET_BYTES = 32

_MAC_BYTES = SEAL_BYTES - KEY_ID_BYTES
_ID_LABEL = b"rsm-spark key id\0"
_ENTRY_LABEL = b"rsm-spark entry\0"
_PASSWORD_LABEL = b"rsm-spark ledger password\0"
_CHECKPOINT_LABEL = b"rsm-spark checkpoint\0"
_CHECKPOINT = struct.Struct(">16sQ32s16sQQ")


class ForeignEntryError(CorruptLogError):
    """An entry of the log's ledgers that no leader of the log wrote there."""


class UnknownKeyError(ForeignEntryError):
    """The entry names a key that this process was not given: its file is old, or the entry is foreign."""


class LogKey(msgspec.Struct, frozen=True):
    """One key of a key file.

    Attributes:
        key_id: 16 hex digits, made from the secret: see `key_id_of`.
        secret: Of `SECRET_BYTES`.
        sign: Signs a message (Ed25519); None where the file has no private key: a reader's.
        public: The public key for that, 32 bytes; b"" without one.

    """

    key_id: str
    secret: bytes
    sign: Callable[[bytes], bytes] | None = None
    public: bytes = b""

    def __repr__(self) -> str:
        """Show which key it is, never what it is."""
        return f"LogKey({self.key_id})"


class EntryKey(NamedTuple):
    """Key that seals the entries of one log."""

    key_id: bytes
    mac_key: bytes

    def finish(self, payload: bytearray, start: int) -> bytes:
        """Put the seal behind a payload that begins at `start`; return the prefix hash after the whole of it."""
        payload += self.key_id
        hasher = sha256(memoryview(payload)[start:])
        mac = hmac.digest(self.mac_key, hasher.digest(), "sha256")
        payload += mac
        hasher.update(mac)
        return hasher.digest()


def key_id_of(secret: bytes) -> str:
    """Return the id of a key: it tells two keys apart, and nothing of the secret."""
    return sha256(_ID_LABEL + secret).digest()[:KEY_ID_BYTES].hex()


class KeyRing:
    """The keys that a process was given, oldest first.

    Args:
        keys: At least one.

    """

    def __init__(self, keys: Sequence[LogKey]) -> None:
        self._keys: dict[str, LogKey] = {}
        self._entry_keys: dict[tuple[bytes, bytes], EntryKey] = {}
        self.replace(keys)

    def replace(self, keys: Sequence[LogKey]) -> None:
        """Take other keys from now on."""
        assert keys, "a ring has at least one key"
        self._keys = {key.key_id: key for key in keys}
        self._entry_keys.clear()

    def refresh(self) -> bool:
        """Look whether there are other keys now; return whether there are. These stay as they are."""
        return False

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the keys, oldest first."""
        return tuple(self._keys)

    @property
    def newest(self) -> LogKey:
        """Key that is to seal once every replica has it."""
        return self._keys[self.ids[-1]]

    def get(self, key_id: str) -> LogKey | None:
        """Return a key; None if it is not here."""
        return self._keys.get(key_id)

    def entry_key(self, key_id: bytes, log_id: bytes) -> EntryKey | None:
        """Return what seals the entries of a log under a key; None if the key is not here."""
        place = (key_id, log_id)
        found = self._entry_keys.get(place)
        if found is None:
            key = self._keys.get(key_id.hex())
            if key is None:
                return None
            mac_key = hmac.digest(key.secret, _ENTRY_LABEL + log_id, "sha256")
            found = self._entry_keys[place] = EntryKey(key_id, mac_key)
        return found

    def password(self, key_id: str, log_id: str) -> bytes:
        """Return the password of a log's ledgers under a key.

        Raises:
            UnknownKeyError: The key is not here.

        """
        key = self._keys.get(key_id)
        if key is None:
            raise UnknownKeyError(f"a ledger of log {log_id} has a password of key {key_id}, {self.lacking()}")
        return hmac.digest(key.secret, _PASSWORD_LABEL + bytes.fromhex(log_id), "sha256").hex().encode()

    def lacking(self) -> str:
        """Say which keys there are, for an error about another one."""
        return f"the key file of this process has {', '.join(self.ids)}: give it the newest one"


def ledger_password(chain: LogChain, ledger_id: int, keys: KeyRing | None, plain: bytes | None) -> bytes | None:
    """Return the password to open a ledger of a log with; None = a reader without the key takes what it finds.

    Args:
        chain: Of the log.
        ledger_id: One that it names, else it is taken for one without a key.
        keys: Of this process.
        plain: Password of the ledgers from before the log had a key.

    Raises:
        UnknownKeyError: The ledger is of a key that is not in the ring.

    """
    ledger = next((ledger for ledger in chain.ledgers if ledger.ledger_id == ledger_id), None)
    if ledger is None or not ledger.key_id:
        return plain
    return None if keys is None else keys.password(ledger.key_id, log_id_of(ledger, chain))


def check_seal(payload: bytes | memoryview, envelope: Envelope, keys: KeyRing, log_id: bytes) -> bytes:
    """Return the prefix hash after a sealed entry, if its seal is right.

    Raises:
        UnknownKeyError: Its key is not in the ring.
        ForeignEntryError: The seal is not that of this key over this entry.

    """
    key = keys.entry_key(envelope.key_id, log_id)
    if key is None:
        raise UnknownKeyError(f"it is sealed with key {envelope.key_id.hex()}, {keys.lacking()}")
    view = memoryview(payload)
    end = len(view) - _MAC_BYTES
    hasher = sha256(view[:end])
    if not hmac.compare_digest(hmac.digest(key.mac_key, hasher.digest(), "sha256"), view[end:]):
        raise ForeignEntryError(f"its seal is not that of key {envelope.key_id.hex()}")
    hasher.update(view[end:])
    return hasher.digest()


def checkpoint_message(
    log_id: bytes, revision: int, prefix_hash: bytes, digest: bytes, row_count: int, logged_ms: int
) -> bytes:
    """Return what is signed for a checkpoint: the log, how far, its whole history, the state, and when.

    Args:
        log_id: 16 bytes.
        revision: Of the checkpoint: of the last record before its entry.
        prefix_hash: Hash of the log up to there.
        digest: State digest there, 16 bytes.
        row_count: Rows there.
        logged_ms: Logged time of the checkpoint's entry.

    """
    return _CHECKPOINT_LABEL + _CHECKPOINT.pack(log_id, revision, prefix_hash, digest, row_count, logged_ms)
