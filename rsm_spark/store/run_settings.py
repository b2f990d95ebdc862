"""What the options of a `run` command mean, for every process that is a replica."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ledger.errors import UsageError
from rsm_spark.grpc.security import Security
from rsm_spark.runtime import ReplicaSettings
from rsm_spark.snapshots import SnapshotStore

__all__ = ["lake_of", "run_replica", "store_fields"]


def store_fields(given: Any) -> dict[str, Any]:
    """Return the fields of a `StoreSettings`, from options of the names in `rsm_spark.store.run_options`.

    Raises:
        UsageError: A value is none, or a file cannot be used.

    """
    return {
        "log": given.log,
        "replica_id": given.replica_id or _default_id(given.data_dir),
        "data_dir": given.data_dir,
        "bind": given.bind,
        "port": given.port,
        "advertise": given.advertise,
        "security": Security(
            tls_ca=given.tls_ca,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            tls_client_ca=given.tls_client_ca,
            token_file=given.token_file,
        ),
        "keep_snapshots": given.keep_snapshots,
        "replica": _replica_settings(given),
    }


def _replica_settings(given: Any) -> ReplicaSettings:
    ensemble_size, write_quorum, ack_quorum = _quorum(given.bookies)
    return ReplicaSettings(
        rsm_root=given.rsm_root,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        allow_single_copy=given.single_copy,
        ledger_password=_password(given.password_file),
        roll_bytes=given.roll_bytes,
        roll_records=given.roll_records,
        roll_s=given.roll_s,
        retention_ms=int(given.retention_s * 1000),
        trim_s=given.trim_s,
        single_copy=given.trim_single_copy,
        domain=given.domain,
        snapshot_s=given.snapshot_s,
        snapshot_bytes=given.snapshot_bytes,
        verify_s=given.verify_s,
        lake_s=given.lake_s,
        checkpoint_records=given.checkpoint_records,
        session_ttl_ms=given.session_ttl_ms,
        campaign=not given.follow_only,
    )


def lake_of(path: str | None, log: str) -> SnapshotStore | None:
    """Return the snapshots in a folder or at a URI; None if none is named."""
    if path is None:
        return None
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    return LakeSnapshots(lake_place(path, log))


def run_replica(work: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end, on the quickest event loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _quorum(text: str) -> tuple[int, int, int]:
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise UsageError(f"--bookies {text!r}: expected ensemble/write quorum/ack quorum, for example 3/3/2")
    return int(parts[0]), int(parts[1]), int(parts[2])


def _password(path: Path | None) -> bytes:
    """Read the ledgers' password; what the file holds is told nobody."""
    if path is None:
        return b""
    try:
        password = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise UsageError(f"--password-file {path}: {error.strerror}") from None
    if not password or b"\n" in password:
        raise UsageError(f"--password-file {path}: expected one line")
    return password


def _default_id(data_dir: Path) -> str:
    """Return a name that the same folder on the same host gets again."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in f"{socket.gethostname()}-{data_dir.resolve()}")
    return os.fsencode(plain.strip("-"))[-120:].decode()
