"""Settings of one server of a file store."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.errors import UsageError
from ledger.http.api_settings import ApiSettings
from ledger.options import Option
from rsm_spark.files.limits import LARGE_BYTES_MAX
from rsm_spark.server.replica_server import StoreSettings

DEFAULT_LOG = "files"


class FileHttpSettings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the door: those of any API, with bodies as long as a file may be."""

    port: Annotated[int, Option("Port of WebHDFS; 0 = any that is free.", name="http_port", ge=0, le=65535)] = 0
    body_bytes_max: int = LARGE_BYTES_MAX
    read_body_bytes_per_s: int = 256 * 1024


class FileSettings(StoreSettings, frozen=True, kw_only=True):
    """Settings of one server of a file store: those of a replica, and of its door.

    Attributes:
        http: Of the door.

    """

    log: Annotated[str, Option("Name of the file store's log.", variables=("RSM_LOG",))] = DEFAULT_LOG
    ledger_files: Annotated[
        bool,
        Option("Files above 1 MiB lie in ledgers of their own, up to 8 GiB; its backups are as large as they are."),
    ] = False
    http: FileHttpSettings = FileHttpSettings()

    def door(self) -> FileHttpSettings:
        """Return the settings of the door: it has the replica's certificate and principals unless it has its own.

        Raises:
            UsageError: Calls of the replica need a token, and the door would need none.

        """
        security, http = self.security, self.http
        if security.principals is not None and http.principals is None and http.tokens_file is None:
            http = msgspec.structs.replace(http, principals=security.principals)
        if security.tls_cert is not None and http.tls_cert is None:
            http = msgspec.structs.replace(http, tls_cert=security.tls_cert, tls_key=security.tls_key)
        if security.token_file is not None and http.principals is None and http.tokens_file is None:
            raise UsageError(
                "--token-file guards the replica alone: say with --principals, or --tokens-file, who may use WebHDFS"
            )
        return http
