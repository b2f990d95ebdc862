"""Commands that take Structs, and configuration of the processes: default < file < environment < flag.

    @app.command()
    @process_command("bookie")
    def run(given: BookieRun) -> None: ...

The options of the Struct (see `ledger.options`) are the command's flags, the keys of a file, `port = 3181`, and
variables, `RSM_BOOKIE__PORT=3181`. The file is the first of: `--conf FILE`, `$RSM_CONF_DIR/bookie.toml`,
`./conf/bookie.toml`, `/etc/rsm-spark/bookie.toml`. A command that is no process is an `options_command`: flags alone.
"""

from __future__ import annotations

import difflib
import inspect
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from ledger.errors import UsageError
from ledger.options import REQUIRED, OptionField, options_in, take_options

CONF_FOLDERS = (Path("conf"), Path("/etc/rsm-spark"))
"""Folders of configuration files, where neither flag nor environment names one; the first is relative."""

CONF_PARAMETER = "_conf"
"""Name of the parameter that says `--conf`."""


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


def check_value(context: typer.Context, option: Any, value: Any, where: str) -> None:
    """Refuse a value that an option of a command would not take.

    Args:
        context: Of the command.
        option: One of its options.
        value: As a file or a variable says it.
        where: Place that says it, for the message.

    Raises:
        UsageError: It does not fit; the message says where it stands, and why.

    """
    try:
        option.get_runtime_param().coerce(value, param=option, ctx=context)
    except typer.BadParameter as error:
        raise UsageError(f"{where}: {option.name} = {value!r}: {' '.join(error.message.split())}") from error


def check_values(context: typer.Context, path: Path, values: Mapping[str, Any]) -> None:
    """Refuse values of a file that the options of a command would not take.

    Raises:
        UsageError: There is one; the message names file and line.

    """
    keys = [line.partition("=")[0].strip(" \t\"'") for line in path.read_text(encoding="utf-8").splitlines()]
    for option in context.command.params:
        if option.name in values:
            place = f"{path}:{keys.index(option.name) + 1}" if option.name in keys else str(path)
            check_value(context, option, values[option.name], place)


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"


def options_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer: in place of each parameter that is a Struct it has the Struct's options."""
    return _expanded(function, "")


def process_command(process: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the same for the `run` of a process: its options may be said by file and by environment too."""
    return lambda function: _expanded(function, process)


def _expanded(function: Callable[..., None], process: str) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    structs = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }

    def parameters() -> Iterator[inspect.Parameter]:
        for name, one in inspect.signature(function).parameters.items():
            if name not in structs:
                yield one.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        fields = [field for kind in structs.values() for field in options_in(kind)]
        for field in sorted(fields, key=lambda field: field.default is not REQUIRED):
            yield _parameter(field, process)
        if process:
            conf = Annotated[Path | None, _conf_option(process)]
            yield inspect.Parameter(CONF_PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=conf)

    def command(**values: Any) -> None:
        values.pop(CONF_PARAMETER, None)
        given = {name: take_options(kind, values) for name, kind in structs.items()}
        function(**given, **values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {}
    # What Typer reads instead of the function's own parameters.
    command.__signature__ = inspect.Signature(list(parameters()))  # type: ignore[attr-defined]
    return command


def _parameter(field: OptionField, process: str) -> inspect.Parameter:
    least, most = field.bounds
    variables = dict.fromkeys(field.option.variables)
    if process:
        variables[f"{variable_prefix(process)}_{field.name.upper()}"] = None
    flag = f"--{field.name.replace('_', '-')}"
    if field.default is True:
        flag += f"/--no-{flag[2:]}"  # What is so by default can be switched off.
    option = typer.Option(
        flag,
        help=field.option.help,
        metavar=field.option.metavar,
        min=least,
        max=most,
        envvar=list(variables) or None,
        show_default=field.option.shown or True,
    )
    default = inspect.Parameter.empty if field.default is REQUIRED else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[field.type, option]
    )


def _conf_option(process: str) -> Any:
    """Return the option that names the file; it is read before all other options are looked at."""

    def apply(context: typer.Context, chosen: Path | None) -> Path | None:
        path = find_file(process, chosen, os.environ)
        names = [one.name for one in context.command.params if one.name and one.name != CONF_PARAMETER]
        check_variables(process, os.environ, names)
        if path is not None:
            values = read_file(path, names)
            check_values(context, path, values)
            context.default_map = {**(context.default_map or {}), **values}
        return path

    return typer.Option(
        "--conf",
        metavar="FILE",
        is_eager=True,
        callback=apply,
        help="Options as `name = value` lines of TOML; flags and RSM_… variables go before.",
        show_default=f"{process}.toml in $RSM_CONF_DIR, ./conf or /etc/rsm-spark",
    )
