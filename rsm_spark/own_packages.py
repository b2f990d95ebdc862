"""Check that Python finds this project's packages, and not a module of the same name from somebody else.

A folder `ledger` or a file `broker.py` beside a script hides ours: Python looks beside the script, and with `-m` in the
working directory, before it looks at what is installed. What fails then names a module of ours that is not there.
Imports nothing of ours: that is what may be hidden.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def hidden_package(*names: str) -> str:
    """Return which of these packages of ours is hidden, by what, and what to do; "" = none is."""
    for name in names:
        place = _foreign_place(name)
        if place is not None:
            return (
                f"Python finds another `{name}` before that of rsm-spark: {place}. Rename it, or keep its folder from "
                f"the front of Python's path: {_advice(place)}"
            )
    return ""


def check_own_packages(*names: str) -> None:
    """Look at packages before something is imported from them.

    Raises:
        ImportError: One is hidden; see `hidden_package`.

    """
    why = hidden_package(*names)
    if why:
        raise ImportError(why)


def _foreign_place(name: str) -> str | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    place = spec.origin or next(iter(spec.submodule_search_locations or []), "")
    is_package = spec.submodule_search_locations is not None
    # Ours lie beside this one, each a folder.
    folder = os.path.dirname(place) if spec.origin else place  # noqa: PTH120 - import-light
    is_own = is_package and _real(os.path.dirname(folder)) == _real(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
    return None if is_own else place


def _real(path: str) -> str:
    return os.path.realpath(path)


def _advice(place: str) -> str:
    named = [os.path.realpath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if any(os.path.realpath(place).startswith(part + os.sep) for part in named):
        return "take it out of PYTHONPATH"
    if not sys.flags.safe_path:
        return "start Python with -P, or with PYTHONSAFEPATH=1"
    return "look at sys.path"
