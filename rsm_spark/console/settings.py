"""Settings of a console."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.http.api_settings import ApiSettings
from ledger.options import Option
from ledger.path_units import PATH


class ConsoleHttpSettings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the console's HTTP server."""

    principals: Annotated[
        str | None, Option("File of principals: who may see what. Nobody else is answered.", unit=PATH)
    ] = None
    body_bytes_max: int = 64 * 1024
    bodies_bytes_max: int = 4 * 1024 * 1024
    requests_max: int = 64
    events_max: int = 200


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one console.

    Attributes:
        idle_look_s: The same while nobody looks: for the history.
        thorough_s: The metadata of every ledger are read at most this often.
        idle_thorough_s: The same while nobody looks.
        watched_s: Somebody looks, for this time after a request.

    """

    http: ConsoleHttpSettings = ConsoleHttpSettings()
    look_s: Annotated[float, Option("Look at the cluster this often while somebody watches.", ge=0.5)] = 5.0
    logs_max: Annotated[int, Option("Look at so many logs, by name.", ge=1, le=10_000)] = 500
    data_dir: Annotated[
        str | None, Option("Folder for the history of the last day; without it a restart begins a new one.", unit=PATH)
    ] = None
    idle_look_s: float = 60.0
    thorough_s: float = 30.0
    idle_thorough_s: float = 300.0
    watched_s: float = 60.0
