"""Encrypted connections to ZooKeeper: a file names the certificates.

It is TOML with the keys `ca`, `cert`, `key` (PEM files) and `check_hostname` of `ledger.tls.TlsSettings`. A path that
does not begin with a slash counts from the folder of the file. Every server of the metadata URI is then a port for TLS
(`secureClientPort`): there is no way back to plain text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from ledger.configuration import read_file
from ledger.decoding import convert
from ledger.errors import UsageError
from ledger.tls import TlsSettings

TLS_FILE_VARIABLE: Final = "RSM_ZK_TLS_FILE"


def tls_of(tls_file: str | None = None) -> TlsSettings | None:
    """Read which certificates to use for ZooKeeper; None if connections are plain.

    Args:
        tls_file: TOML; with `ca`, the authority that has signed ZooKeeper's certificates (without it, those of the
            system), and `cert` and `key` if ZooKeeper demands a certificate. None means the file that the environment
            names in `RSM_ZK_TLS_FILE`, if it does.

    Raises:
        UsageError: The file cannot be read, or holds something else.

    """
    name = tls_file or os.environ.get(TLS_FILE_VARIABLE)
    if not name:
        return None
    path = Path(name)
    values = read_file(path, TlsSettings.__struct_fields__)
    try:
        found = convert(values, TlsSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error
    files = {key: str(path.parent / file) for key in ("ca", "cert", "key") if (file := getattr(found, key))}
    return msgspec.structs.replace(found, **files)
