"""Entries of a code pool that a task may call: functions of the pool's own modules, and nothing that those only import.

* `EntryError(Exception)`   a code pool has no such entry

The worker looks at what the archive declares before a child hears of a run. This is looked at in the child, which has
imported the module: a declaration may name what another module of the interpreter brought along.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.wire.code_declaration import check_function
from ledger.errors import UsageError


class EntryError(Exception):
    """A code pool has no such entry."""


def entry_of(mode: str, code: str, folder: str) -> Callable[..., Any]:
    """Import a function of a code pool.

    Args:
        mode: "module:function", as a task names it.
        code: Name of the pool.
        folder: Where its archive was unpacked; it is on the path.

    Raises:
        EntryError: There is no such function of the pool's own. What importing it raises comes as it is.

    """
    try:
        check_function(mode)
    except UsageError as error:
        raise EntryError(f"code {code}: {error}") from None
    module_name, _, attribute = mode.partition(":")
    _check_origin(module_name, mode, code, folder)
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise EntryError(f"mode {mode!r}: there is no module {module_name!r} in code {code}") from error
        raise
    if not _lies_in(folder, module_name):
        raise EntryError(f"mode {mode!r}: {module_name} is no module of code {code}")
    for name in attribute.split("."):
        value = getattr(value, name, None)
    if not callable(value):
        raise EntryError(f"mode {mode!r}: {module_name} in code {code} has no function {attribute!r}")
    owner = getattr(value, "__module__", None)
    if not isinstance(owner, str) or not _lies_in(folder, owner):
        raise EntryError(f"mode {mode!r}: {module_name} only imports {attribute!r}; it is not of code {code}")
    function: Callable[..., Any] = value
    return function


def _check_origin(module_name: str, mode: str, code: str, folder: str) -> None:
    """Refuse a module of somebody else's before anything of it runs."""
    # Of the top alone: to look for a module within a package imports the package.
    top = module_name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise EntryError(f"mode {mode!r}: there is no module {module_name!r} in code {code}")
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    if not places or not all(_is_below(folder, place) for place in places):
        raise EntryError(f"mode {mode!r}: {module_name!r} is no module of code {code}")


def _lies_in(folder: str, module_name: str) -> bool:
    """Return whether a module that is imported came from the folder."""
    module = sys.modules.get(module_name)
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and all(_is_below(folder, place) for place in places)


def _is_below(folder: str, place: str) -> bool:
    return Path(place).resolve().is_relative_to(Path(folder).resolve())
