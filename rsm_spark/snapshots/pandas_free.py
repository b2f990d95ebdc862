"""Keeps pandas out of a process that has no use for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa


def leave_pandas_out() -> None:
    """Have pyarrow do without pandas from now on, unless something has imported it already.

    Where pandas is installed, pyarrow imports it when the first array is made, to know its types: more than a second in
    which nothing else of the process runs, and that would be in a leader's first snapshot.
    """
    if "pandas" in sys.modules:
        return
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array(())  # It asks once.
    finally:
        sys.meta_path.remove(refusal)


class _Refusal(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)
