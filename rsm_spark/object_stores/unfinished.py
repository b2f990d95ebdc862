"""Remains of writers that were cut off."""

from __future__ import annotations

from typing import NamedTuple


class Unfinished(NamedTuple):
    """File that was begun and not finished: no reader sees it.

    Attributes:
        path: Of the object that it was to be, or of the file under a name of its own.
        upload_id: As a store numbers uploads in parts; "" = it is a file.
        begun_s: When an upload was begun, seconds since 1970; 0 = nobody knows.

    """

    path: str
    upload_id: str = ""
    begun_s: float = 0.0
