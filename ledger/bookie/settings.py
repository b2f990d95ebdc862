"""Settings of a bookie process."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from ledger.bookie.tls import TlsPolicy
from ledger.errors import UsageError
from ledger.http.settings import HttpPortSettings
from ledger.options import NOT, Option
from ledger.path_units import PATH, PATHS
from ledger.process_guard import STALL_S
from ledger.storage.compaction import CompactionSettings
from ledger.storage.journal import JournalSettings
from ledger.storage.settings import StorageSettings
from ledger.tls import TlsSettings, is_loopback, server_context
from ledger.wire.frames import FRAME_BYTES_MAX

_MIB = 1 << 20


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Bounds on connections and on their memory. `ledger.bookie.gate` and `ledger.frame_pot` choose the ones to cut."""

    count_max: Annotated[
        int,
        Option(
            "Most open connections. Above it, quiet ones of the address that has most are closed.",
            name="connections_max",
            ge=1,
        ),
    ] = 20_000
    address_max: Annotated[
        int,
        Option(
            "Most open connections of one client address. All processes of a host share it.",
            name="connections_per_address_max",
            ge=1,
        ),
    ] = 5_000
    unadmitted_max: Annotated[
        int,
        Option(
            "Most connections that have not finished handshake and log-in. Above it, the oldest are closed.",
            ge=1,
        ),
    ] = 1_000
    unfinished_mib_max: Annotated[
        int,
        Option(
            "Most MiB of unfinished frames; an address has half. Above it, the connection that holds most is closed.",
            ge=16,
        ),
    ] = 256


class BookieSettings(msgspec.Struct, frozen=True):
    """Settings of one bookie process.

    Attributes:
        metadata_uri: Where the metadata are; None is the environment's, else the default.
        tls: Certificate and key, for clients that ask for TLS; with `ca` they must show a certificate.
        connections: How many, and what they may hold.
        journal_file_count: How many of them, one more for fences not counted.
        compaction: When segments are written again.
        session_timeout_ms: Asked of ZooKeeper.
        stall_s: How long the event loop may stand still before the process ends; 0 = for ever.

    """

    data_dir: Annotated[str, Option("Folder of the bookie; it holds `journal` and `ledgers`.", unit=PATH)]
    port: Annotated[
        int,
        Option(
            "Port to listen on. Without --bookie-id it is part of the bookie's id: do not change it then.",
            ge=1,
            le=65535,
        ),
    ]
    metadata_uri: str | None = None
    bind: Annotated[str, Option("Address to listen on.")] = "127.0.0.1"
    advertise: Annotated[str | None, Option("Host under which clients find this bookie.")] = None
    own_id: Annotated[
        str | None,
        Option(
            "Name of the bookie in ledgers, so that its address may change. Without it, the address is its name.",
            name="bookie_id",
        ),
    ] = None
    journal_dir: Annotated[str | None, Option("Folder of the journal. A device of its own is best.", unit=PATH)] = None
    ledger_dirs: Annotated[
        tuple[str, ...],
        Option(
            "Folder of segments and index. Several may be given, each on a disk of its own.",
            name="ledger_dir",
            unit=PATHS,
        ),
    ] = ()
    is_fsync: Annotated[
        bool, Option("Do not sync to the disk. Only for tests: a power cut loses data.", name="no_fsync", unit=NOT)
    ] = True
    is_insecure: Annotated[bool, Option("Listen beyond loopback without TLS.", name="insecure")] = False
    journal_file_mib: Annotated[int, Option("Size of a journal file.")] = 64
    journal_file_count: int = 4
    free_mib_min: Annotated[int, Option("The bookie takes no new entries when fewer MiB are free.")] = 512
    collect_s: Annotated[float, Option("Time between two searches for deleted ledgers, whose entries are dropped.")] = (
        900.0
    )
    session_timeout_ms: int = 10_000
    has_auto_recovery: Annotated[
        bool, Option("Run auto-recovery in this process too, as `rsm autorecovery run` does.", name="autorecovery")
    ] = True
    stall_s: float = STALL_S
    tls: TlsSettings | None = None
    is_tls_required: Annotated[bool, Option("Serve nothing without TLS.", name="tls_required")] = False
    is_read_only: Annotated[bool, Option("Take no new entries but those of recoveries.", name="read_only")] = False
    auth_file: Annotated[
        str | None,
        Option(
            "Serve only clients that log in (SASL, DIGEST-MD5) as a user of this file, of lines digest:user:password.",
            unit=PATH,
        ),
    ] = None
    principals: Annotated[
        str | None,
        Option(
            "File of principals: who may do what. They are users of --auth-file, or have certificates (--tls-ca).",
            unit=PATH,
        ),
    ] = None
    takes_any_ledger: Annotated[
        bool,
        Option(
            "Let clients that did not log in fence and begin ledgers that the metadata do not name.", name="any_ledger"
        ),
    ] = False
    token_file: Annotated[
        str | None,
        Option(
            "Over HTTP, without --principals: callers have to know the token of this file, and may read.", unit=PATH
        ),
    ] = None
    http: HttpPortSettings = HttpPortSettings()
    connections: ConnectionLimits = ConnectionLimits()
    idle_s: Annotated[float, Option("Close connections that are idle for this time; 0 = never.", ge=0)] = 0.0
    compaction: CompactionSettings = CompactionSettings()

    @property
    def host(self) -> str:
        """Host under which clients find it."""
        return self.advertise or self.bind

    @property
    def bookie_id(self) -> str:
        """Its name in ledgers: one of its own, or its address."""
        return self.own_id or f"{self.host}:{self.port}"

    @property
    def journal_root(self) -> str:
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
        is_required = self.is_tls_required or not (is_loopback(self.bind) or self.is_insecure)
        return TlsPolicy(server_context(self.tls), is_required)

    def store_settings(self) -> StorageSettings:
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
        return StorageSettings(
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
    if not (is_loopback(bind) or is_insecure or has_tls):
        raise UsageError(
            f"--bind {bind}: anybody who reaches this address could read and write all ledgers. Bind to 127.0.0.1, "
            "give a certificate (--tls-cert, --tls-key; with --tls-ca only clients with a certificate are served), or "
            "say --insecure if a firewall protects the network"
        )
