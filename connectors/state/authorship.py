"""Authorship of a log, by the public keys of its leaders: for jobs, on the driver, in one pass over what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import LogError
from rsm_spark.log.authorship import Authorship, verify_authorship
from rsm_spark.log.key_file import read_public_keys


def prove_authorship(log: str, public_key: Path, source: Mapping[str, str]) -> dict[str, Any]:
    """Return what `rsm_spark.log.authorship.verify_authorship` finds, as plain values.

    Args:
        log: Name of the log.
        public_key: File of public keys; the auditor's own.
        source: Options of the source: `metadataUri`, `zkAuthFile`, `zkTlsFile`, `rsmRoot`.

    Raises:
        LogError: An entry or a signature is not what it must be, or these keys signed nothing.
        UsageError: The file cannot be used.

    """
    public_keys = read_public_keys(public_key)

    async def prove() -> Authorship:
        client = await LedgerClient.connect(
            source.get("metadataUri"), zk_auth_file=source.get("zkAuthFile"), zk_tls_file=source.get("zkTlsFile")
        )
        try:
            return await verify_authorship(client, log, public_keys, rsm_root=source.get("rsmRoot", DEFAULT_RSM_ROOT))
        finally:
            await client.close()

    found = asyncio.run(prove())
    if not found.signatures:
        raise LogError(f"log {log}: no checkpoint is signed by the keys of {public_key}: nothing proves who wrote it")
    told: dict[str, Any] = msgspec.to_builtins(found)
    return told
