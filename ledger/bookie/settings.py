"""What a bookie process is told."""

from __future__ import annotations

import ipaddress

import msgspec

from ledger.errors import UsageError
from ledger.store.entry_store import StoreSettings
from ledger.store.journal import JournalSettings
from ledger.wire.frames import FRAME_BYTES_MAX

__all__ = ["BookieSettings", "check_bind"]

_MIB = 1 << 20


class BookieSettings(msgspec.Struct, frozen=True):
    """Settings of one bookie process.

    Attributes:
        metadata_uri: Where the metadata are; None is the environment's, else the default.
        port: 0 asks the system for one, for a bookie that is never started again.
        data_dir: Holds `journal` and `ledgers` unless they are named.
        bind: Address to listen at.
        advertise: Host under which clients find this bookie; `bind` by default. With the port it is the id.
        journal_dir: Directory of the journal; best on a device of its own.
        ledger_dir: Directory of segments and index.
        is_fsync: False is for tests only: acknowledged entries do not survive a power cut.
        is_insecure: Beyond loopback without TLS, in words.
        journal_file_mib: Size of each of the journal's files.
        journal_file_count: How many of them, one more for fences not counted.
        free_mib_min: With less free space the bookie takes no adds.
        collect_s: Interval of the collection of deleted ledgers.
        session_timeout_ms: Asked of ZooKeeper.
        has_auto_recovery: Audit and replicate the cluster's ledgers in this process too.

    """

    data_dir: str
    port: int
    metadata_uri: str | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    journal_dir: str | None = None
    ledger_dir: str | None = None
    is_fsync: bool = True
    is_insecure: bool = False
    journal_file_mib: int = 64
    journal_file_count: int = 4
    free_mib_min: int = 512
    collect_s: float = 900.0
    session_timeout_ms: int = 10_000
    has_auto_recovery: bool = False

    @property
    def journal_root(self) -> str:
        """Directory of the journal."""
        return self.journal_dir or f"{self.data_dir}/journal"

    @property
    def ledger_root(self) -> str:
        """Directory of segments and index."""
        return self.ledger_dir or f"{self.data_dir}/ledgers"

    def store_settings(self) -> StoreSettings:
        """Return what the storage needs to know.

        Raises:
            UsageError: The numbers do not fit together.

        """
        file_bytes = self.journal_file_mib * _MIB
        if file_bytes < 2 * FRAME_BYTES_MAX or self.journal_file_count < 2:
            raise UsageError(
                f"journal of {self.journal_file_count} files of {self.journal_file_mib} MiB: at least 2 files of "
                f"{2 * FRAME_BYTES_MAX // _MIB} MiB are needed, so that the largest entry fits"
            )
        journal = JournalSettings(
            f"{self.journal_root}/current", file_bytes=file_bytes, file_count=self.journal_file_count
        )
        return StoreSettings(journal, f"{self.ledger_root}/current", free_bytes_min=self.free_mib_min * _MIB)


def check_bind(bind: str, *, is_insecure: bool) -> None:
    """Refuse an address beyond loopback: whoever reaches the port may write.

    Raises:
        UsageError: The address is not loopback and `--insecure` was not said.

    """
    try:
        is_loopback = ipaddress.ip_address(bind).is_loopback
    except ValueError:
        is_loopback = bind == "localhost"
    if not is_loopback and not is_insecure:
        raise UsageError(
            f"--bind {bind}: anybody who reaches this address could read and write all ledgers, for TLS is not built "
            "yet. Bind to 127.0.0.1, or say --insecure if a firewall protects the network"
        )
