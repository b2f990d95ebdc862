"""Unpacks an archive that a stranger has made: whatever is odd about it is refused, nothing is repaired.

* `CodeArchiveError(RsmError)`   the archive is not unpacked, and says why

Every name is looked at before anything is written, and what is written is counted: what a zip says of its sizes may be
a lie. A wheel is a zip whose RECORD lists its files with their hashes: they have to be true. What Python runs by itself
when it starts (`.pth` files, `sitecustomize`) has no place in an archive.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import sys
import unicodedata
import zipfile
from pathlib import Path

import msgspec

from broker.wire.code_declaration import DECLARATION_FILE, CodeDeclaration, is_application, read_declaration
from ledger.errors import UsageError
from rsm_spark.errors import RsmError

_CHUNK_BYTES = 64 * 1024
_NAME_LENGTH_MAX = 240
_RECORD_BYTES_MAX = 8 * 1024 * 1024
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""The others may ask for gigabytes of memory to unpack a few bytes."""
_STARTED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_OURS = frozenset({"broker", "ledger", "rsm_spark", "msgspec"})
"""Packages that a child process has imported already: a module of the same name would never be found."""


class CodeArchiveError(RsmError):
    """The archive of a code pool cannot be used."""


class ArchiveLimits(msgspec.Struct, frozen=True):
    """Bounds of what is unpacked.

    Attributes:
        files_max: Files and folders.
        bytes_max: All files together.
        ratio_max: How many times as large as the archive they may be, all together; beyond 1 MiB.
        depth_max: Folders in each other.

    """

    files_max: int = 10_000
    bytes_max: int = 64 * 1024 * 1024
    ratio_max: int = 20
    depth_max: int = 32


def measure(archive: bytes, limits: ArchiveLimits | None = None) -> int:
    """Look at an archive without unpacking it, and return how many bytes its files have at most.

    Raises:
        CodeArchiveError: It is refused.

    """
    limits = limits if limits is not None else ArchiveLimits()
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return sum(entry.file_size for entry in _checked(opened.infolist(), len(archive), limits).values())
    except CodeArchiveError:
        raise
    except Exception as error:
        raise _unreadable(error) from error


def unpack(archive: bytes, folder: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack an archive into an empty folder.

    Args:
        archive: A zip or a wheel.
        folder: Exists, and is nobody else's.
        limits: Bounds.

    Raises:
        CodeArchiveError: It is refused; the folder may hold a part of it.

    """
    limits = limits if limits is not None else ArchiveLimits()
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            files = _checked(opened.infolist(), len(archive), limits)
            hashes = {name: _write(opened, entry, folder / name, limits) for name, entry in files.items()}
            _check_record(folder, hashes)
    except CodeArchiveError:
        raise
    except OSError as error:
        raise CodeArchiveError(f"the archive cannot be unpacked here: {error.strerror or error}") from error
    except Exception as error:
        # Its bytes decide what is raised: by zipfile, zlib, csv, and whatever those call.
        raise _unreadable(error) from error


def declared(folder: Path) -> CodeDeclaration:
    """Return what an unpacked archive declares.

    Raises:
        CodeArchiveError: It declares nothing, or what is not in it.

    """
    try:
        found = read_declaration((folder / DECLARATION_FILE).read_bytes())
    except FileNotFoundError:
        raise CodeArchiveError(
            f"it declares no entries, so nothing of it can be called. Put a file {DECLARATION_FILE} into it, with "
            'entries = ["module:function", …], or deploy it anew with rsm task deploy --entry module:function'
        ) from None
    except (UsageError, OSError) as error:
        raise CodeArchiveError(str(error)) from error
    for entry in found.entries:
        if is_application(entry):
            if not (folder / entry.partition("#")[0]).is_file():
                raise CodeArchiveError(
                    f"{DECLARATION_FILE} declares {entry!r}, and there is no such file in the archive"
                )
            continue
        module = folder.joinpath(*entry.partition(":")[0].split("."))
        beside = module.parent.glob(f"{module.name}.*")  # A module may be a library too: name.cpython-311-….so
        if not module.is_dir() and not any(one.suffix in {".py", ".so"} for one in beside):
            raise CodeArchiveError(f"{DECLARATION_FILE} declares {entry!r}, and there is no such module in the archive")
    return found


def _unreadable(error: Exception) -> CodeArchiveError:
    return CodeArchiveError(f"the archive is no zip that can be read: {type(error).__name__}: {error}")


def _checked(entries: list[zipfile.ZipInfo], archive_bytes: int, limits: ArchiveLimits) -> dict[str, zipfile.ZipInfo]:
    """Return the files by their names; folders are made for them."""
    if len(entries) > limits.files_max:
        raise CodeArchiveError(f"the archive has {len(entries):,} files; {limits.files_max:,} are allowed")
    total = sum(entry.file_size for entry in entries)
    allowed = min(limits.bytes_max, max(limits.ratio_max * archive_bytes, 1024 * 1024))
    if total > allowed:
        raise CodeArchiveError(
            f"the archive of {archive_bytes:,} bytes would become {total:,} bytes; {allowed:,} are allowed"
        )
    files: dict[str, zipfile.ZipInfo] = {}
    # As a file system may see it that knows no case: what it is, and who brought it.
    seen: dict[str, str] = {}
    folders: set[str] = set()
    for entry in entries:
        name = _checked_name(entry, limits)
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in seen:
            raise CodeArchiveError(f"the archive names {name!r} twice (the other one is {seen[folded]!r})")
        seen[folded] = name
        parts = folded.split("/")
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
        if not entry.is_dir():
            files[name] = entry
    for name in files:
        if unicodedata.normalize("NFC", name).casefold() in folders:
            raise CodeArchiveError(f"{name!r} is a file of the archive and a folder too")
    _check_modules(files)
    return files


def _checked_name(entry: zipfile.ZipInfo, limits: ArchiveLimits) -> str:
    # `filename` is what zipfile makes of it: cut at a zero byte, for example.
    original = entry.orig_filename
    name = original.removesuffix("/")
    parts = name.split("/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    why = ""
    if not name or len(name) > _NAME_LENGTH_MAX:
        why = f"its name has {len(name)} characters; 1 to {_NAME_LENGTH_MAX} are allowed"
    elif any(unicodedata.category(letter).startswith("C") for letter in name):
        why = "its name has characters that cannot be seen"
    elif "\\" in name or ":" in name:
        why = "its name has a backslash or a colon"
    elif name.startswith("/"):
        why = "its path is absolute"
    elif any(part in {"", ".", ".."} for part in parts):
        why = "its path has empty parts, . or .."
    elif len(parts) > limits.depth_max:
        why = f"it lies {len(parts)} folders deep; {limits.depth_max} are allowed"
    elif kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        why = "it is a link or a special file"
    elif entry.flag_bits & 0x1:
        why = "it is encrypted"
    elif entry.compress_type not in _METHODS:
        why = f"it is packed by method {entry.compress_type}; only stored and deflated files are taken"
    elif parts[-1].casefold().endswith((".pth", "._pth")):
        why = "Python runs .pth files when it starts"
    elif entry.is_dir() and entry.file_size:
        why = "it is a folder with contents of its own"
    if why:
        raise CodeArchiveError(f"the archive is refused for {original[:80]!r}: {why}")
    return name


def _check_modules(files: dict[str, zipfile.ZipInfo]) -> None:
    for name in files:
        top = name.split("/")[0]
        module = top.partition(".")[0] if "/" not in name else top
        is_module = "/" in name or top.endswith((".py", ".pyc", ".so", ".pyd"))
        if is_module and module.casefold() in _STARTED_BY_PYTHON:
            raise CodeArchiveError(f"{name!r} of the archive: Python runs {module} when it starts; rename it")
        if is_module and (module in sys.stdlib_module_names or module in _OURS):
            owner = "this worker" if module in _OURS else "Python's standard library"
            raise CodeArchiveError(f"{name!r} of the archive has the name of a module of {owner}: rename it")


def _write(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, limits: ArchiveLimits) -> str:
    """Write one file; return its SHA-256 as RECORD writes it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    size = 0
    with opened.open(entry) as source, path.open("xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > min(entry.file_size, limits.bytes_max):
                raise CodeArchiveError(f"{entry.filename!r} of the archive is larger than it says")
            digest.update(chunk)
            target.write(chunk)
    path.chmod(0o600)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _check_record(folder: Path, hashes: dict[str, str]) -> None:
    """Compare the files of a wheel with what its RECORD says of them."""
    records = [name for name in hashes if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    for record in records:
        if (folder / record).stat().st_size > _RECORD_BYTES_MAX:
            raise CodeArchiveError(f"{record} has more than {_RECORD_BYTES_MAX:,} bytes")
        text = (folder / record).read_text(encoding="utf-8")
        for row in csv.reader(io.StringIO(text)):
            if len(row) < 2 or not row[1]:
                continue  # RECORD itself, and signatures.
            name, said = row[0], row[1]
            kind, _, value = said.partition("=")
            if name not in hashes:
                raise CodeArchiveError(f"{record} lists {name[:80]!r}, which is not in the archive")
            if kind != "sha256" or value.rstrip("=") != hashes[name]:
                raise CodeArchiveError(f"{name[:80]!r} of the archive is not what {record} says: {said[:60]}")
