"""Objects of a user's own modules, by the name that an option gives them."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from ledger.errors import UsageError

_OURS = tuple(f"{Path(__file__).parents[1] / package}{os.sep}" for package in ("ledger", "rsm_spark"))
"""Folders of frames that are not the user's."""


def load_named(name: str, *, given: str, example: str, folder: Path | None = None) -> Any:
    """Return the object of a name, "package.module:object"; modules in a folder are found too.

    Args:
        name: The name.
        given: What it was given as, for errors: "--mapper".
        example: A name of that kind, for errors.
        folder: Where modules are looked for behind what is installed; None = the working directory.

    Raises:
        UsageError: There is no such folder, module or object, or importing it fails.

    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise UsageError(f"{given} {name!r}: expected MODULE:NAME, for example {example}")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{given} {name}: there is no folder {folder} to look for {module_name} in")
    path = str((folder or Path.cwd()).resolve())
    if path not in sys.path:
        sys.path.append(path)  # Behind what is installed: a folder of the user's may have the name of one of ours.
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever it is, it is the user's
        raise UsageError(f"{given} {name}: {fault_of(error)}") from error
    return found


def fault_of(error: BaseException) -> str:
    """Return an error of a user's code in one line, with the place: "ValueError: bad table (bank.py:7)"."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen ", *_OURS))
    ]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
