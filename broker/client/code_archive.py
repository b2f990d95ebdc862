"""Code of a folder, package or module as a zip: the same files give the same bytes, whoever makes it and when."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from broker.machine.limits import CODE_BYTES_MAX
from broker.wire.code_declaration import DECLARATION_FILE, declaration_text, read_declaration
from ledger.errors import UsageError

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT_FOLDERS = frozenset({"__pycache__", "node_modules"})
_LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyo"})
_UNPACKED_BYTES_MAX = 64 * 1024 * 1024


class CodeArchiveFile(NamedTuple):
    """An archive.

    Attributes:
        name: What it is called unless it is given another name: what was packed, and the beginning of its hash.
        content: The zip.
        sha256: Of it, hex.

    """

    name: str
    content: bytes
    sha256: str


def pack_code(path: Path | str, *, entries: Sequence[str] = (), network: bool = False) -> CodeArchiveFile:
    """Pack a folder, a package or a module.

    A package (a folder with `__init__.py`) is packed under its own name; of any other folder its contents are. Hidden
    files, byte code and `__pycache__` stay behind.

    Args:
        path: Of the code.
        entries: What tasks may call, as "module:function"; none = the folder has an `rsm-pool.toml` that says so.
        network: With `entries`: whether the code needs the network.

    Raises:
        UsageError: There is nothing to pack, too much of it, or a link: what it leads to may be anything; or nothing
            says what tasks may call.

    """
    root = Path(path).resolve()
    if not root.exists():
        raise UsageError(f"code {path}: there is no such file or folder")
    base = root.parent if root.is_file() or (root / "__init__.py").is_file() else root
    files = [root] if root.is_file() else list(_files(root))
    if not files:
        raise UsageError(f"code {path}: there is no file in it")
    declaration = _declaration(root, entries, network=network)
    size = sum(file.stat().st_size for file in files)
    if size > _UNPACKED_BYTES_MAX:
        raise UsageError(f"code {path}: {size} bytes unpacked, at most {_UNPACKED_BYTES_MAX}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, DECLARATION_FILE, declaration)
        for file in files:
            if file != root / DECLARATION_FILE:
                _add(archive, file.relative_to(base).as_posix(), file.read_bytes())
    content = buffer.getvalue()
    if len(content) > CODE_BYTES_MAX:
        raise UsageError(f"code {path}: an archive of {len(content)} bytes, at most {CODE_BYTES_MAX}")
    digest = hashlib.sha256(content).hexdigest()
    word = re.sub(r"[^a-z0-9._-]", "-", root.stem.lower())[:48].lstrip("._-") or "code"
    return CodeArchiveFile(f"{word}-{digest[:12]}", content, digest)


def _declaration(root: Path, entries: Sequence[str], *, network: bool) -> bytes:
    """Return what the archive declares: as its folder says, or as the caller does."""
    file = root / DECLARATION_FILE
    if entries and file.is_file():
        raise UsageError(f"code {root}: its {DECLARATION_FILE} declares what tasks may call; give no entries beside it")
    if entries:
        return declaration_text(entries, network=network).encode()
    if not root.is_dir() or not file.is_file():
        raise UsageError(
            f"code {root}: nothing says what tasks may call of it. Name that, as module:function (rsm task deploy "
            f"--entry handlers:resize), or put a file {DECLARATION_FILE} there with entries = ['handlers:resize']"
        )
    text = file.read_bytes()
    read_declaration(text)
    return text


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    entry.create_system = 3  # Unix, on whatever system it is made
    archive.writestr(entry, content)


def _files(root: Path) -> Iterator[Path]:
    """Iterate over the files of a folder, in the order of their names."""
    for path in sorted(root.iterdir(), key=lambda path: path.name):
        if path.name.startswith(".") or path.suffix in _LEFT_OUT_SUFFIXES or path.name in _LEFT_OUT_FOLDERS:
            continue
        if path.is_symlink():
            raise UsageError(f"code {path}: it is a link, which is not followed; put the file itself there")
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path
