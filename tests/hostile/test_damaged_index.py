"""An index damaged by bits and by pages: a bookie rebuilds it, it never believes it, and it never starts in circles."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.storage.index import CorruptIndexError
from ledger.storage.index_check import check_index, died_in_a_library
from tests.hostile import index_reader

_PAGE_BYTES = 4096


def _flip_a_bit(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _zero_a_page(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content) // _PAGE_BYTES) * _PAGE_BYTES
    content[start : start + _PAGE_BYTES] = bytes(_PAGE_BYTES)


def _fill_a_page_at_random(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content) // _PAGE_BYTES) * _PAGE_BYTES
    content[start : start + _PAGE_BYTES] = rng.randbytes(_PAGE_BYTES)


def _bring_an_old_page_back(content: bytearray, rng: random.Random) -> None:
    pages = len(content) // _PAGE_BYTES
    source, target = (rng.randrange(pages) * _PAGE_BYTES for _ in range(2))
    content[target : target + _PAGE_BYTES] = content[source : source + _PAGE_BYTES]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("trials", [6, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "damage",
    [_flip_a_bit, _zero_a_page, _fill_a_page_at_random, _bring_an_old_page_back],
    ids=lambda damage: damage.__name__.strip("_"),
)
def test_a_damaged_index_is_rebuilt_or_whole(
    damage: Callable[[bytearray, random.Random], None], trials: int, tmp_path: Path
) -> None:
    """What a start does: the look in a process of its own, then the index is opened, read and written."""
    index_reader.write(str(tmp_path / "whole"))
    whole = (tmp_path / "whole" / "data.mdb").read_bytes()
    check_index(str(tmp_path / "whole"))
    outcomes: Counter[str] = Counter()
    for trial in range(trials):
        rng = random.Random(trial)
        content = bytearray(whole)
        damage(content, rng)
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "data.mdb").write_bytes(content)
        try:
            check_index(str(folder))
        except CorruptIndexError:
            outcomes["found by the look"] += 1
            continue
        outcomes[_used(folder, tmp_path / "death.txt", trial)] += 1
    print(dict(outcomes))
    assert outcomes["found by the look"] >= trials // 10


def _used(folder: Path, death: Path, trial: int) -> str:
    command = [sys.executable, "-m", "tests.hostile.index_reader", str(folder), str(death)]
    code = subprocess.run(command, check=False, capture_output=True).returncode
    assert code != index_reader.LIES, f"trial {trial}: rows are missing, or wrong, and nothing was found"
    if code == index_reader.SOUND:
        return "harmless"
    if code == index_reader.DAMAGED:
        return "found in use"
    assert died_in_a_library(str(death)), f"trial {trial}: ended with code {code}, and the next start would not know"
    return "found by its end"
