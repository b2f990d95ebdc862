"""Notice of a bookie that serves: a line for who started it, and a file in its folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ledger.bookie.folders import absolute
from ledger.bookie.settings import BookieSettings
from ledger.bookie.tls import TlsPolicy
from ledger.storage.entry_store import EntryStore

_PROCESS_FILE = "process.json"


class BookieReadyNotice(msgspec.Struct, frozen=True):
    """The line by which a bookie says that it is registered and serves.

    Attributes:
        address: Where clients find it, host:port.
        http_address: Where it answers HTTP; "" = nowhere.

    """

    ready: bool
    bookie_id: str
    port: int
    fsync: bool
    limbo: bool
    replayed_entries: int
    tls: str
    login: str
    address: str = ""
    http_address: str = ""


def make_notice(
    settings: BookieSettings, tls: TlsPolicy, bookie_id: str, store: EntryStore, *, http_address: str
) -> BookieReadyNotice:
    """Return what a bookie says."""
    return BookieReadyNotice(
        ready=True,
        bookie_id=bookie_id,
        port=settings.port,
        fsync=settings.is_fsync,
        limbo=bool(store.limbo.reasons),
        replayed_entries=store.replayed_entry_count,
        tls=_tls_words(tls),
        login="off" if settings.auth_file is None else "required",
        address=f"{settings.host}:{settings.port}",
        http_address=http_address,
    )


def write_process_file(folder: str, settings: BookieSettings, notice: BookieReadyNotice) -> None:
    """Write the file that `rsm bookie info` reads."""
    content = {
        "pid": os.getpid(),
        "journal_dir": absolute(settings.journal_root),
        "ledger_dirs": list(map(absolute, settings.ledger_roots)),
        **msgspec.to_builtins(notice),
    }
    (Path(folder) / _PROCESS_FILE).write_bytes(msgspec.json.encode(content))


def _tls_words(tls: TlsPolicy) -> str:
    """Say in a word what connections must do about TLS."""
    if tls.context is None:
        return "off"
    words = "required" if tls.is_required else "offered"
    return f"{words}, with client certificates" if tls.context.verify_mode else words
