from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.worker.code.archive import ArchiveLimits, CodeArchiveError, measure, unpack
from tests.unit.broker.worker.archives import archive, link, raw, renamed, understated, wheel


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_good_archive_is_unpacked_for_its_owner_alone(tmp_path: Path) -> None:
    unpack(archive({"pool/": "", "pool/__init__.py": "", "pool/handlers.py": "X = 1", "top.py": b"Y = 2"}), tmp_path)
    assert written(tmp_path) == {"pool/__init__.py": b"", "pool/handlers.py": b"X = 1", "top.py": b"Y = 2"}
    assert (tmp_path / "top.py").stat().st_mode & 0o077 == 0


def test_what_an_archive_needs_is_known_before_it_is_unpacked(tmp_path: Path) -> None:
    made = archive({"pool/": "", "pool/a.py": "X = 1", "b.py": "Y = 22"})
    assert measure(made) == 11
    with pytest.raises(CodeArchiveError, match="no zip"):
        measure(b"PK")


def test_a_wheel_whose_record_is_true_is_unpacked(tmp_path: Path) -> None:
    unpack(wheel({"pool.py": "X = 1"}), tmp_path)
    assert (tmp_path / "pool.py").read_text() == "X = 1"


_BAD = {
    "absolute": (archive({"/etc/x.py": ""}), "absolute"),
    "above": (archive({"a/../../x.py": ""}), "empty parts, . or .."),
    "above at the end": (archive({"a/..": ""}), "empty parts, . or .."),
    "here": (archive({"./x.py": ""}), "empty parts, . or .."),
    "doubled slash": (archive({"a//x.py": ""}), "empty parts, . or .."),
    "backslash": (renamed({"a_x.py": ""}, b"a_x.py", b"a\\x.py"), "backslash"),
    "drive": (archive({"C:/x.py": ""}), "colon"),
    "zero byte": (renamed({"a_x.py": ""}, b"a_x.py", b"a\0x.py"), "cannot be seen"),
    "line end": (archive({"a\nx.py": ""}), "cannot be seen"),
    "turned around": (archive({"a\u202ex.py": ""}), "cannot be seen"),
    "long name": (archive({"a" * 250: ""}), "250 characters"),
    "deep": (archive({"a/" * 40 + "x.py": ""}), "41 folders deep"),
    "link": (raw([link("pool", "/etc")]), "link"),
    "link and through it": (raw([link("pool", "/etc"), (zipfile.ZipInfo("pool/x.py"), "")]), "link"),
    "other case": (archive({"Pool.py": "", "pool.py": ""}), "twice"),
    "same folder": (archive({"pool": "", "pool/": ""}), "twice"),
    "file and folder": (archive({"pool": "", "pool/x.py": ""}), "file of the archive and a folder"),
    "standard library": (archive({"json.py": ""}), "Python's standard library"),
    "standard package": (archive({"email/__init__.py": ""}), "Python's standard library"),
    "run by Python at its start": (archive({"sitecustomize.py": ""}), "Python runs sitecustomize when it starts"),
    "run by Python for a user": (archive({"UserCustomize/__init__.py": ""}), "when it starts"),
    "path file": (archive({"pool/x.PTH": "import os"}), "Python runs .pth files"),
    "ours": (archive({"broker/__init__.py": ""}), "this worker"),
    "understated": (understated(100_003, 1_000), "no zip that can be read"),
    "bomb": (archive({"zeros": b"\0" * 50_000_000}), "would become 50,000,000 bytes"),
    "wrong record": (wheel({"pool.py": "X = 1"}, wrong="pool.py"), "is not what pool-1.dist-info/RECORD says"),
    "record of nothing": (wheel({"pool.py": "X = 1"}, unlisted="gone.py"), "which is not in the archive"),
    "no zip": (b"not a zip", "no zip that can be read"),
    "nothing": (b"", "no zip that can be read"),
    "cut": (archive({"pool.py": "X = 1"})[:-30], "no zip that can be read"),
}


@pytest.mark.parametrize("name", _BAD)
def test_a_bad_archive_is_refused_and_nothing_is_written_outside(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    content, why = _BAD[name]
    with pytest.raises(CodeArchiveError, match=why):
        unpack(content, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = raw([(zipfile.ZipInfo("pool.py"), "X = 1"), (zipfile.ZipInfo("pool.py"), "X = 2")])
    with pytest.raises(CodeArchiveError, match="twice"):
        unpack(twice, tmp_path)


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    made = bytearray(archive({"pool.py": "X = 1"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        made[made.index(mark) + place] |= 1
    with pytest.raises(CodeArchiveError, match="encrypted"):
        unpack(bytes(made), tmp_path)


def test_more_files_than_allowed_are_refused(tmp_path: Path) -> None:
    made = archive({f"f{number}": "" for number in range(20)})
    with pytest.raises(CodeArchiveError, match="20 files; 10 are allowed"):
        unpack(made, tmp_path, ArchiveLimits(files_max=10))


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    made = raw([(zipfile.ZipInfo("pool.py"), "X = 1")])
    spoiled = bytearray(made)
    spoiled[30 + len("pool.py")] ^= 0xFF  # The first byte behind the header of the only file.
    with pytest.raises(CodeArchiveError):
        unpack(bytes(spoiled), tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 60))
def test_no_damage_raises_anything_else(place: int, byte: int, cut: int, tmp_path: Path) -> None:
    made = bytearray(archive({"pool/x.py": "X = 1\n" * 30, "y.py": "Y = 2"}))
    made[place % len(made)] = byte
    folder = tmp_path / f"{place}-{byte}-{cut}"
    folder.mkdir(exist_ok=True)
    try:
        unpack(bytes(made[: len(made) - cut]), folder)
    except CodeArchiveError:
        pass
