"""A file that says which bookie stands in which rack, for `ClientSettings.racks`.

    # bookie or host     rack
    10.0.0.1             /row1/a
    10.0.0.2:3181        /row1/b

Two columns, as in Hadoop's table mapping; empty lines and what follows a # do not count.
"""

from __future__ import annotations

from pathlib import Path

from ledger.errors import UsageError


def read_racks(path: str | Path) -> dict[str, str]:
    """Return bookie id or host -> rack.

    Raises:
        UsageError: The file cannot be read, a line does not have two columns, or a bookie is named twice.

    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the racks of bookies from {path}: {error}") from error
    racks: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        columns = line.partition("#")[0].split()
        if not columns:
            continue
        if len(columns) != 2:
            raise UsageError(f"{path}, line {number}: need a bookie (or host) and its rack, found {line.strip()!r}")
        bookie, rack = columns
        if racks.setdefault(bookie, rack) != rack:
            raise UsageError(f"{path}, line {number}: {bookie} is in {racks[bookie]} by an earlier line")
    return racks
