"""An application that a task names, and whether it is one that this worker runs.

* `ApplicationRefusedError(Exception)`   the task names none, or one that this worker does not run
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from broker.wire.code_declaration import is_application

_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*", re.ASCII)


class ApplicationRefusedError(Exception):
    """A task names no application, or one that this worker does not run."""


class Application(msgspec.Struct, frozen=True):
    """An application.

    Attributes:
        path: Of the file, as its driver sees it.
        main_class: Of a JAR; "" = it is a program in Python.

    """

    path: str
    main_class: str = ""


def deployed_application(mode: str, folder: str) -> Application:
    """Return an application of a code pool.

    Args:
        mode: As the task names it, which its archive declares.
        folder: Where its driver sees the archive.

    Raises:
        ApplicationRefusedError: It names something else.

    """
    if not is_application(mode):
        raise ApplicationRefusedError(
            f"mode {mode[:200]!r} is no application: expected program.py or some.jar#org.example.Main"
        )
    file, _, main_class = mode.partition("#")
    return Application(f"{folder}/{file}", main_class)


def allowed_application(named: str, places: Sequence[str]) -> Application:
    """Return an application of this machine that a payload names.

    Args:
        named: Its path, of a JAR with "#" and the class.
        places: Files and folders that the operator has opened.

    Raises:
        ApplicationRefusedError: It is none of those.

    """
    path, _, main_class = named.partition("#")
    shown = repr(named[:200])
    if not named:
        raise ApplicationRefusedError(
            "it names no application: deploy one (rsm task deploy) and submit with --code and --mode, or name the path "
            "of one in the payload"
        )
    # Links are followed first: what counts is where the file lies.
    file = Path(path).resolve()
    opened = [Path(place).resolve() for place in places]
    if not path.startswith("/") or not any(file == place or file.is_relative_to(place) for place in opened):
        raise ApplicationRefusedError(
            f"application {shown} lies in none of the places that this worker opens (--submit-applications)"
        )
    if not file.is_file():
        raise ApplicationRefusedError(f"application {shown}: there is no such file on this machine")
    is_jar = file.suffix == ".jar"
    if (
        (not is_jar and file.suffix != ".py")
        or is_jar != bool(main_class)
        or (is_jar and not _CLASS.fullmatch(main_class))
    ):
        raise ApplicationRefusedError(
            f"application {shown}: expected a program, /…/name.py, or a JAR and its class, /…/name.jar#org.example.Main"
        )
    return Application(str(file), main_class)
