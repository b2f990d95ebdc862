"""Settings of a replica refuse what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.errors import UsageError
from rsm_spark.runtime.settings import ReplicaSettings


@pytest.mark.parametrize(("changes", "message"), [
    ({"ack_quorum": 1}, "allow_single_copy"),
    ({"ack_quorum": 3}, "ack quorum"),
    ({"ensemble_size": 1}, "ensemble"),
    ({"entry_bytes_max": 5 * 1024 * 1024}, "entry_bytes_max"),
    ({"roll_s": 0}, "roll_s 0"),
    ({"roll_records": 0}, "roll_records 0"),
    ({"trim_s": 0}, "trim_s 0"),
    ({"retention_ms": -1}, "retention_ms -1"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReplicaSettings(**changes)


def test_single_copy_has_to_be_asked_for() -> None:
    settings = ReplicaSettings(ensemble_size=1, write_quorum=1, ack_quorum=1, allow_single_copy=True)
    assert settings.ack_quorum == 1
