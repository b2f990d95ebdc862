"""Settings of a client of the ledger; the defaults suit a local network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from ledger.core.placement import PlacementPolicy
from ledger.login import LoginSettings, read_login
from ledger.tls import TlsSettings


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and times of one `LedgerClient`.

    Attributes:
        protocol: What is spoken with bookies: "v2" (smaller and quicker, with batch reads; what it cannot carry, such
            as long polls, goes over a second, v3 connection when it is first needed) or "v3".
        connect_timeout_s: For one attempt to reach a bookie.
        request_timeout_s: For one answer of a bookie; checked every `sweep_interval_s`.
        silence_s: A bookie that owes a writer's oldest entry for this long, though another has stored it, gives its
            place to a spare that answers, if the ack quorum needs it: a process that stands still and a disk that hangs
            are not waited for. Looked at every `sweep_interval_s`. If no bookie stores, all are waited for. `None`:
            never.
        quorum_timeout_s: An append that has no ack quorum after this long fails, even while bookies seem alive.
        reconnect_delay_s_min: Pause after the first failed attempt; it doubles, with jitter, up to the next.
        reconnect_delay_s_max: Longest pause between two attempts.
        sweep_interval_s: How often time-outs are looked for.
        in_flight_bytes_max: Payload bytes of one writer that are not confirmed; `drain()` waits for less.
        write_buffer_bytes_max: Bytes waiting for one bookie's socket; beyond it the connection is given up.
        read_batch_bytes: Bytes that one read asks for ahead of what was taken.
        speculative_read_s: A bookie that is silent for this long is not waited for: the next replica is asked too.
        long_poll_s: How long a bookie may hold a wait for the next confirmed entry.
        ensemble_change_after_s: A bookie that has stored nothing for this long after a failure gives its place in the
            ensemble to another one, while the ack quorum holds without it; a connection that breaks and comes back
            changes nothing. At once if it refused an entry, or if the ack quorum needs another bookie. (Java's client
            always changes at once.) `None`: never; a writer whose ack quorum is lost then fails.
        quarantine_s: How long a bookie that could not be reached, was silent or failed repeatedly is asked last, and
            is left out of new ensembles while there are enough others.
        tls: Certificates and keys; connections are then encrypted (START_TLS). `None`: they are plain.
        login: User and password, for bookies that demand a log-in (SASL, DIGEST-MD5). `None`: none.
        placement: How bookies are chosen: "random", "free-space" or "rack" (see `ledger.core.placement`).
        racks: Bookie id, or the host part of one -> rack, for the rack policy; `read_racks` reads them from a file.
        keeps_rule: Bookies are chosen by the cluster's placement rule, if it has one (`ledger.core.placement_rule`),
            and by `placement` among those that it allows.
        bookie_info_interval_s: How old the known free space of a bookie may be, for the free-space policy.
        explicit_lac_interval_s: How often a writer tells the bookies its LAC, if it has moved, so that readers see
            the last entries of a writer that pauses; `None`: only by `write_lac`.

    """

    protocol: Literal["v2", "v3"] = "v2"
    connect_timeout_s: float = 3.0
    request_timeout_s: float = 5.0
    silence_s: float | None = 1.0
    quorum_timeout_s: float = 20.0
    reconnect_delay_s_min: float = 0.05
    reconnect_delay_s_max: float = 1.0
    sweep_interval_s: float = 0.25
    in_flight_bytes_max: int = 64 * 1024 * 1024
    write_buffer_bytes_max: int = 128 * 1024 * 1024
    read_batch_bytes: int = 16 * 1024 * 1024
    speculative_read_s: float = 0.5
    long_poll_s: float = 2.0
    ensemble_change_after_s: float | None = 1.0
    quarantine_s: float = 30.0
    tls: TlsSettings | None = None
    login: LoginSettings | None = None
    placement: PlacementPolicy = "random"
    racks: dict[str, str] = {}
    keeps_rule: bool = True
    bookie_info_interval_s: float = 60.0
    explicit_lac_interval_s: float | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the defaults, with TLS and a log-in where the environment names their files.

        Args:
            environment: `RSM_CLIENT__TLS_CA`, `RSM_CLIENT__TLS_CERT`, `RSM_CLIENT__TLS_KEY`: PEM files, as in
                `TlsSettings`. Any of them makes all connections to bookies encrypted. `RSM_CLIENT__AUTH_FILE`: a file
                with the line `digest:user:password`, for bookies that demand a log-in.

        Raises:
            UsageError: The log-in cannot be read.

        """
        ca, cert, key = (environment.get(f"RSM_CLIENT__TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
        auth_file = environment.get("RSM_CLIENT__AUTH_FILE")
        return cls(
            tls=TlsSettings(ca=ca, cert=cert, key=key) if ca or cert or key else None,
            login=read_login(auth_file) if auth_file else None,
        )
