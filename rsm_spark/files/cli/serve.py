"""`rsm files serve`: one server of a file store as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.configuration import process_command
from rsm_spark.files.settings import FileSettings
from rsm_spark.server.replica_options import ReplicaOptions

if TYPE_CHECKING:
    # Loaded when the command runs: what only prints help must not wait for it.
    from rsm_spark.server.process import ReadyNotice


class FileServeOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm files serve` takes."""

    files: FileSettings


@process_command("files")
def serve(given: FileServeOptions) -> None:
    """Serve a file store until ctrl-C or SIGTERM; two or more servers make it highly available.

    Examples:
        rsm files serve --data-dir /var/lib/files-a --http-port 9870

        rsm files serve --data-dir /var/lib/files-b --http-port 9870 --bookies 3/3/2 --principals principals.toml --json

    """
    given.begin()
    from rsm_spark.files.service import file_service  # noqa: PLC0415 - `--help` needs no server
    from rsm_spark.server.process import run_replica  # noqa: PLC0415

    settings = given.complete(given.files)
    run_replica(given, settings, lambda client, lake: file_service(client, settings, lake), _words)


def _words(notice: ReadyNotice) -> str:
    return f"replica {notice.replica_id} of log {notice.log} serves WebHDFS on {notice.http_address}, ctrl-C ends it"
