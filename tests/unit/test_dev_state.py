"""What a development cluster remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.dev.errors import ClusterBusyError, ClusterError
from ledger.dev.process import ProcessId
from ledger.dev.state import ClusterState, ServerState, cluster_lock, read_state, write_state


def _state() -> ClusterState:
    return ClusterState(
        zookeeper=ServerState("zookeeper", "127.0.0.1:2181", ProcessId(7, 8, "boot")),
        owns_zookeeper=True,
        bookies=[ServerState("bookie-1", "127.0.0.1:3181"), ServerState("bookie-2", "127.0.0.1:3182")],
        bookie_count=1,
    )


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_state(tmp_path, _state())
    assert read_state(tmp_path) == _state()


def test_a_directory_without_a_cluster_has_no_state(tmp_path: Path) -> None:
    assert read_state(tmp_path / "nowhere") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"zookeeper": 1}'])
def test_a_damaged_state_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    with pytest.raises(ClusterError, match=r"cannot read .*cluster\.json"):
        read_state(tmp_path)


def test_a_state_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    state = _state()
    state.format = 99
    write_state(tmp_path, state)
    with pytest.raises(ClusterError, match="format 99"):
        read_state(tmp_path)


def test_the_wanted_servers_leave_out_bookies_beyond_the_count() -> None:
    assert [server.name for server in _state().wanted()] == ["zookeeper", "bookie-1"]
    assert [server.name for server in _state().owned()] == ["zookeeper", "bookie-1", "bookie-2"]


def test_a_foreign_zookeeper_is_not_among_the_owned_servers() -> None:
    state = _state()
    state.owns_zookeeper = False
    assert [server.name for server in state.owned()] == ["bookie-1", "bookie-2"]
    assert state.metadata_uri == "zk+hierarchical://127.0.0.1:2181/ledgers"


def test_the_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    with cluster_lock(tmp_path), pytest.raises(ClusterBusyError, match="at work"), cluster_lock(tmp_path):
        pass
    with cluster_lock(tmp_path):
        pass
