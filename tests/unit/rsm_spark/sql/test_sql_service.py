"""Settings that a replica of SQL tables is run with."""

from __future__ import annotations

from pathlib import Path

from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.service import patient


def test_a_leader_may_be_silent_for_as_long_as_a_statement_may_take() -> None:
    settings = StoreSettings(log="shop", replica_id="a", data_dir=Path("shop-a"))
    assert patient(settings, SqlSettings(command_ms_max=2_000)).replica.beat_silence_s == 2.3


def test_who_does_not_listen_for_beats_goes_on_so() -> None:
    deaf = StoreSettings(
        log="shop", replica_id="a", data_dir=Path("shop-a"), replica=ReplicaSettings(beat_silence_s=0.0)
    )
    assert patient(deaf, SqlSettings()) == deaf
