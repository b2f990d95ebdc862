"""The rule of the held version."""

from __future__ import annotations

import pytest

from rsm_spark.core.chain_write import ChainWrite, WriteVerdict

MINE = ChainWrite(b"mine", 7)


@pytest.mark.parametrize(
    ("value", "version", "verdict"),
    [
        (b"before", 7, WriteVerdict.SEND_AGAIN),
        (b"mine", 8, WriteVerdict.ARRIVED),
        (b"theirs", 8, WriteVerdict.DEPOSED),
        (b"mine", 9, WriteVerdict.DEPOSED),
        (b"theirs", 9, WriteVerdict.DEPOSED),
        (b"before", 6, WriteVerdict.DEPOSED),
    ],
)
def test_write_is_judged_by_version_and_bytes(value: bytes, version: int, verdict: WriteVerdict) -> None:
    assert MINE.judge(value, version) is verdict
