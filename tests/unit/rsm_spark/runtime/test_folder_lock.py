from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import UsageError
from rsm_spark.runtime.folder_lock import locked


def test_folder_is_made_and_held_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "replica"
    with locked(folder):
        with pytest.raises(UsageError, match="another replica runs on this folder"), locked(folder):
            pass
    with locked(folder):
        assert folder.is_dir()


def test_folder_is_free_again_when_its_holder_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), locked(tmp_path):
        raise ValueError("no")
    with locked(tmp_path):
        pass
