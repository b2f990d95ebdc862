"""Configuration of the processes: default < file < environment < flag, for every option of a `run` command alike.

A command takes part by one parameter more:

    @app.command()
    def run(port: _Port, _conf: Annotated[Path | None, configured("bookie")] = None) -> None: ...

Its options are then also the keys of a file, `port = 3181`, and variables, `RSM_BOOKIE__PORT=3181`. The file is the
first of: `--conf FILE`, `$RSM_CONF_DIR/bookie.toml`, `./conf/bookie.toml`, `/etc/rsm-spark/bookie.toml`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import typer

from ledger.errors import UsageError

__all__ = [
    "CONF_FOLDERS",
    "CONF_PARAMETER",
    "check_variables",
    "configured",
    "find_file",
    "read_file",
    "variable_prefix",
]

CONF_FOLDERS = (Path("conf"), Path("/etc/rsm-spark"))
"""Where files are looked for when neither flag nor environment says; the first is relative to the working directory."""

CONF_PARAMETER = "_conf"
"""Name of the parameter that `configured` annotates."""


def variable_prefix(process: str) -> str:
    """Return what the variables of a process begin with: "RSM_BOOKIE_" for RSM_BOOKIE__PORT."""
    return f"RSM_{process.upper()}_"


def find_file(process: str, chosen: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file that configures a process, or None if there is none.

    Args:
        process: "bookie", "store", …
        chosen: What `--conf` says.
        environment: Its `RSM_CONF_DIR` names a folder.

    Raises:
        UsageError: The flag or the variable names what is not there.

    """
    if chosen is not None:
        if not chosen.is_file():
            raise UsageError(f"--conf {chosen}: there is no such file")
        return chosen
    folder = environment.get("RSM_CONF_DIR")
    if folder:
        if not Path(folder).is_dir():
            raise UsageError(f"RSM_CONF_DIR={folder}: there is no such folder")
        folders: tuple[Path, ...] = (Path(folder),)
    else:
        folders = CONF_FOLDERS
    candidates = (folder / f"{process}.toml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def read_file(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read the values of a file.

    Args:
        path: TOML; one flat table.
        keys: What a process can be told.

    Raises:
        UsageError: It cannot be read, or holds a key that is none; the message names the nearest.

    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from error
    for key, value in values.items():
        if isinstance(value, dict):
            raise UsageError(f"{path}: {key!r} is a table: the file is flat, one key a line")
        if key not in keys:
            raise UsageError(f"{path}: unknown key {key!r}{_nearest(key, keys)}")
    return values


def check_variables(process: str, environment: Mapping[str, str], keys: Collection[str]) -> None:
    """Refuse variables of a process that mean nothing: a typing error would pass unnoticed.

    Raises:
        UsageError: There is one; the message names the nearest.

    """
    prefix = f"{variable_prefix(process)}_"
    for name in sorted(environment):
        if name.startswith(prefix) and name[len(prefix) :].lower() not in keys:
            near = _nearest(name, [f"{prefix}{key.upper()}" for key in keys])
            raise UsageError(f"environment: unknown variable {name}{near}")


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"


def configured(process: str) -> Any:
    """Return the option that makes a command configurable by file and environment; its parameter is `_conf`."""

    def apply(context: typer.Context, chosen: Path | None) -> Path | None:
        # Called before all other options are looked at: from here on the file stands below the environment.
        context.auto_envvar_prefix = variable_prefix(process)
        path = find_file(process, chosen, os.environ)
        names = [one.name for one in context.command.params if one.name and one.name != CONF_PARAMETER]
        check_variables(process, os.environ, names)
        if path is not None:
            context.default_map = {**(context.default_map or {}), **read_file(path, names)}
        return path

    return typer.Option(
        "--conf",
        metavar="FILE",
        is_eager=True,
        callback=apply,
        help="Options as `name = value` lines of TOML; flags and RSM_… variables go before.",
        show_default=f"{process}.toml in $RSM_CONF_DIR, ./conf or /etc/rsm-spark",
    )
