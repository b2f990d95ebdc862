"""What a bookie process is told."""

from __future__ import annotations

import ipaddress
import math

import msgspec

from ledger.bookie.tls import TlsPolicy
from ledger.errors import UsageError
from ledger.store.compaction import CompactionSettings
from ledger.store.entry_store import StoreSettings
from ledger.store.journal import JournalSettings
from ledger.tls import TlsSettings, server_context
from ledger.wire.frames import FRAME_BYTES_MAX

__all__ = ["BookieSettings", "check_bind", "check_compaction"]

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
        ledger_dirs: Directories of segments; the first keeps the index and the state too.
        is_fsync: False is for tests only: acknowledged entries do not survive a power cut.
        is_insecure: Beyond loopback without TLS, in words.
        tls: Certificate and key, for clients that ask for TLS; with `ca` they must show a certificate.
        is_tls_required: Nothing is served without TLS; beyond loopback always so, unless `is_insecure`.
        auth_file: Users and passwords (`ledger.login.read_users`), one of whom each connection must log in as.
        is_read_only: Take no adds but those of recoveries: for a bookie that is to be emptied.
        connections_max: Open connections; one more is closed at once.
        idle_s: A connection that asks for nothing this long is closed; 0 is never.
        journal_file_mib: Size of each of the journal's files.
        journal_file_count: How many of them, one more for fences not counted.
        free_mib_min: With less free space the bookie takes no adds.
        collect_s: Interval of the collection of deleted ledgers; it also looks whether a compaction is due.
        compaction: When segments are written again.
        session_timeout_ms: Asked of ZooKeeper.
        has_auto_recovery: Audit and replicate the cluster's ledgers in this process too.

    """

    data_dir: str
    port: int
    metadata_uri: str | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    journal_dir: str | None = None
    ledger_dirs: tuple[str, ...] = ()
    is_fsync: bool = True
    is_insecure: bool = False
    journal_file_mib: int = 64
    journal_file_count: int = 4
    free_mib_min: int = 512
    collect_s: float = 900.0
    session_timeout_ms: int = 10_000
    has_auto_recovery: bool = False
    tls: TlsSettings | None = None
    is_tls_required: bool = False
    is_read_only: bool = False
    auth_file: str | None = None
    connections_max: int = 20_000
    idle_s: float = 0.0
    compaction: CompactionSettings = CompactionSettings()

    @property
    def journal_root(self) -> str:
        """Directory of the journal."""
        return self.journal_dir or f"{self.data_dir}/journal"

    @property
    def ledger_roots(self) -> tuple[str, ...]:
        """Directories of segments; the first keeps the index and the state too."""
        return self.ledger_dirs or (f"{self.data_dir}/ledgers",)

    def tls_policy(self) -> TlsPolicy:
        """Return what connections must do about TLS.

        Raises:
            UsageError: TLS is required and there is no certificate, or a file cannot be used.

        """
        if self.tls is None:
            if self.is_tls_required:
                raise UsageError("--tls-required needs a certificate: say --tls-cert and --tls-key")
            return TlsPolicy()
        is_required = self.is_tls_required or not (_is_loopback(self.bind) or self.is_insecure)
        return TlsPolicy(server_context(self.tls), is_required)

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
        check_compaction(self.compaction)
        first, *more = (f"{root}/current" for root in self.ledger_roots)
        return StoreSettings(
            journal, first, tuple(more), free_bytes_min=self.free_mib_min * _MIB, compaction=self.compaction
        )


def check_compaction(settings: CompactionSettings) -> None:
    """Refuse thresholds by which compaction would never rest, or could not run.

    Raises:
        UsageError: A share is not within 0 and 1, or an interval or the rate is not above 0.

    """
    for name in ("minor", "major"):
        share, interval_s = getattr(settings, f"{name}_share"), getattr(settings, f"{name}_interval_s")
        if not 0 <= share <= 1:
            raise UsageError(f"--{name}-compaction-share {share:g}: a share is within 0 and 1; 0 is never")
        if not 0 < interval_s < math.inf:
            raise UsageError(f"--{name}-compaction-s {interval_s:g}: an interval is above 0; a share of 0 switches off")
    if settings.bytes_per_s <= 0:
        raise UsageError(f"compaction at {settings.bytes_per_s} bytes a second would never end: give at least 1 MiB")


def check_bind(bind: str, *, is_insecure: bool, has_tls: bool = False) -> None:
    """Refuse an address beyond loopback without TLS: whoever reaches the port may write.

    Raises:
        UsageError: The address is not loopback, there is no certificate, and `--insecure` was not said.

    """
    if not (_is_loopback(bind) or is_insecure or has_tls):
        raise UsageError(
            f"--bind {bind}: anybody who reaches this address could read and write all ledgers. Bind to 127.0.0.1, "
            "give a certificate (--tls-cert, --tls-key; with --tls-ca only clients with a certificate are served), or "
            "say --insecure if a firewall protects the network"
        )


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
