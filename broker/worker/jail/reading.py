"""Files that jailed code may read: the system's programs and libraries, Python, its installed packages, and this one.

Not what else lies on the worker's path: the folder in which it was started may hold its data and its token.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_OF_NETWORKS = ("/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
_OURS = ("broker", "connectors", "ledger", "rsm_spark", "msgspec")
"""Packages that a child imports, as far as its worker has."""


def _prefixes() -> list[str]:
    found = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    return list(dict.fromkeys([*found, *(str(Path(place).resolve()) for place in found)]))


def _is_installed(place: str) -> bool:
    return any(place == one or place.startswith(f"{one}/") for one in (*_prefixes(), "/usr"))


def _entries_of_ours() -> dict[str, str]:
    """Return our packages that are imported here by the entry of the path where each was found, a folder or a zip."""
    found: dict[str, str] = {}
    for name in _OURS:
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin is None:
            continue
        for entry in sys.path:
            folder = str(Path(entry).absolute()) if entry in {"", "."} else entry
            if origin.startswith(f"{folder}/{name}"):
                found[name] = folder
                break
    return found


def jail_path() -> list[str]:
    """Return the path of jailed children."""
    installed = [entry for entry in sys.path if entry and _is_installed(entry)]
    return list(dict.fromkeys([*installed, *_entries_of_ours().values()]))


def readable_places(extra: Sequence[str], *, has_network: bool) -> list[str]:
    """Return files and folders that children may read besides their code; of those that there are.

    Args:
        extra: What the operator shows them.
        has_network: Whether they also need what names hosts.

    """
    ours = [
        entry if Path(entry).is_file() else f"{entry}/{name}"
        for name, entry in _entries_of_ours().items()
        if not _is_installed(entry)
    ]
    places = [*_SYSTEM, *(_OF_NETWORKS if has_network else ()), *_prefixes(), *ours, *extra]
    return [place for place in dict.fromkeys(places) if place != "/" and Path(place).exists()]
