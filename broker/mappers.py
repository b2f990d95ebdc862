"""A user's mapper, by the name that `--mapper` gives it; see `broker.core.mapping`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from broker.core.mapping import Mapper
from ledger.errors import UsageError

__all__ = ["load_mapper"]


def load_mapper(name: str) -> Mapper:
    """Return the function of a name, "package.module:function"; modules in the working directory are found too.

    Raises:
        UsageError: There is no such module or function, or importing it fails.

    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise UsageError(f"--mapper {name!r}: expected MODULE:FUNCTION, for example rules.priorities:of_task")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever it is, it is the user's
        raise UsageError(f"--mapper {name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UsageError(f"--mapper {name}: it is no function, but a {type(found).__name__}")
    mapper: Mapper = found
    return mapper
