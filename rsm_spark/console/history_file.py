"""History of the console on a disk: one line of JSON a minute, so that a restarted console has the day before.

It is for people: a line that is lost with a crash is a gap in a picture. The file is written anew when half of it is
older than a day, so it has at most two days.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from rsm_spark.console.core.history import SAMPLES_MAX, HistoryRow

_LOGGER = logging.getLogger(__name__)
_NAME = "history.jsonl"
_LINE_MAX = 64 * 1024
_BYTES_MAX = 64 * 1024 * 1024


class HistoryFile:
    """See the module.

    Args:
        folder: Of the console; made if it is not there.

    Raises:
        UsageError: It cannot be used.

    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._lines = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._path.open("ab"):
                pass
        except OSError as error:
            raise UsageError(
                f"--data-dir {folder}: the console cannot keep its history there: {error.strerror}"
            ) from error

    def read(self) -> list[HistoryRow]:
        """Return the samples of the file, oldest first; lines that are none are passed over."""
        samples = list(self._read())
        self._lines = len(samples)
        return samples

    def write(self, sample: HistoryRow, ring: Sequence[HistoryRow]) -> None:
        """Write a sample; a disk that takes nothing is complained of, and costs no more than the sample.

        Args:
            sample: The newest.
            ring: All of the last day with it, for when the file is written anew.

        """
        try:
            if self._lines < 2 * SAMPLES_MAX:
                with self._path.open("ab") as file:
                    file.write(_line(sample))
                self._lines += 1
            else:
                self._renew(ring)
        except OSError as error:
            _LOGGER.warning("the console's history is not written to %s: %s", self._path, error.strerror)

    def _renew(self, ring: Sequence[HistoryRow]) -> None:
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.writelines(map(_line, ring))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._lines = len(ring)

    def _read(self) -> Iterator[HistoryRow]:
        decoder = json_decoder(HistoryRow)
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - _BYTES_MAX))
                while line := file.readline(_LINE_MAX):
                    try:
                        yield decoder.decode(line)
                    except msgspec.MsgspecError:
                        continue  # Half a line, or one of another version.
        except OSError as error:
            _LOGGER.warning("the console's history cannot be read from %s: %s", self._path, error.strerror)


def _line(sample: HistoryRow) -> bytes:
    return msgspec.json.encode(sample) + b"\n"
