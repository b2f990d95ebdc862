"""Registration of the format "ledger" in an installed Spark: it imports every module named `pyspark_*`.

Spark's look-up has no mercy: one module that fails to import hides every Python source of the session. So this one
never fails; if the source cannot be loaded, a stand-in is there all the same and says why when it is used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource", "source_or_stand_in"]

_PACKAGES = ("connectors", "rsm_spark", "ledger")


def source_or_stand_in(name: str, module: str, class_name: str, *, caller: str) -> type[DataSource]:
    """Return the class `DefaultSource` of a module `pyspark_*`; never raises.

    Args:
        name: Of the source, for `format`.
        module: Where the source is.
        class_name: What it is called there.
        caller: `__name__` of the module that will hold the class under the name `DefaultSource`: it is pickled by it.

    """
    names = {"__module__": caller, "__qualname__": "DefaultSource"}
    try:
        # Looked at first: what only a reader imports would fail much later, and without a word of why.
        why = _hidden()
        source = None if why else getattr(import_module(module), class_name)
    except Exception as error:  # noqa: BLE001 - see the module
        source = None
        why = (
            f"cannot be loaded by {sys.executable}: {type(error).__name__}: {error}. Install rsm-spark[spark] for this "
            "interpreter (Spark 4.2 is needed; 4.0 and 4.1 only read), or point PYSPARK_PYTHON at one that has it"
        )
    if source is not None:
        return type("DefaultSource", (source,), {**names, "__doc__": f"The source `{name}`."})

    def schema(_self: DataSource) -> str:
        raise ImportError(f"source {name} {why}")

    stand_in = {"name": classmethod(lambda _cls: name), "schema": schema, "__doc__": f"Says why {name} is not there."}
    return type("DefaultSource", (DataSource,), {**names, **stand_in})


def _hidden() -> str:
    """Tell which package is hidden by somebody else's of the same name, and what to do; "" if none is."""
    for package in _PACKAGES:
        place = _foreign_place(package)
        if place is not None:
            folder = os.path.dirname(os.path.dirname(place))  # noqa: PTH120 - import-light
            return f"is hidden: Python finds another package `{package}` before rsm-spark's, {place}. {_advice(folder)}"
    return ""


def _foreign_place(name: str) -> str | None:
    """Return where a package of this name was found, if it is not the one that came with this module."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    file = spec.origin or f"{next(iter(spec.submodule_search_locations or []), '?')}/"
    return None if _folder(_folder(file)) == _folder(__file__) else file


def _folder(path: str) -> str:
    return os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - import-light


def _advice(folder: str) -> str:
    """Tell what to do about a folder whose packages hide ours."""
    named = {os.path.realpath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part}
    if os.path.realpath(folder) in named:
        return "Take that folder out of PYTHONPATH, or rename the package"
    if os.path.realpath(folder) == os.path.realpath(os.getcwd()) and not sys.flags.safe_path:  # noqa: PTH109
        return (
            "Start Spark with PYTHONSAFEPATH=1 in its environment (its Python processes then leave out the directory "
            "that it was started in), start it from another directory, or rename the package"
        )
    return "Rename that package, or use an environment without it"


DefaultSource = source_or_stand_in("ledger", "connectors.sink.format", "LedgerFormat", caller=__name__)
