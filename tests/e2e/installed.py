"""Environments of Python that hold the wheel and no more than what it asks for, made without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel by the project's own backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, capture_output=True, check=True)
    (path,) = folder.glob("*.whl")
    return path


def build_sdist(folder: Path) -> Path:
    """Build the archive of the sources by the project's own backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, capture_output=True, check=True)
    (path,) = folder.glob("*.tar.gz")
    return path


def install_sdist(sdist: Path, wheel: Path, folder: Path) -> Path:
    """Make an environment in which pip has built and installed the archive of the sources; return its Python.

    What the wheel needs, and what builds it, is there before: pip finds all of it without a network, or refuses.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = _site(folder)
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        archive.extract(metadata, folder / "described")
    (own,) = Distribution.discover(name="rsm-spark", path=[str(folder / "described")])
    builder = distribution("hatchling")
    _copy([*needs(own, ()), builder, *needs(builder, ())], site)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir", "install"]
    ended = subprocess.run(
        [*pip, "--no-index", "--no-build-isolation", "--no-compile", str(sdist)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return python


def placed(wheel: Path, folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Return what each file of a wheel holds, and its place in an environment."""
    site = _site(folder)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, is_shared, place = name.partition(".data/data/")
            yield archive.read(name), folder / place if is_shared else site / name


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Make an environment with a wheel and what it needs with these extras; return its Python.

    What it needs is copied from this environment, by the requirements that each distribution names itself.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    for contents, target in placed(wheel, folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents)
    (own,) = Distribution.discover(name="rsm-spark", path=[str(_site(folder))])
    _copy(needs(own, extras), _site(folder))
    return folder / "bin" / "python"


def _site(folder: Path) -> Path:
    (site,) = (folder / "lib").glob("python3*/site-packages")
    return site


def _copy(distributions: list[Distribution], site: Path) -> None:
    for one in distributions:
        for file in one.files or ():
            source = Path(str(one.locate_file(file)))
            if ".." not in file.parts and source.is_file() and not (site / file).exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)


def needs(own: Distribution, extras: tuple[str, ...]) -> list[Distribution]:
    """Return what a distribution needs, directly or not, with these extras."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, frozenset[str]]] = set()

    def ask(one: Distribution, wanted: frozenset[str]) -> None:
        for requirement in _requirements(one, wanted):
            name = requirement.name.lower().replace("_", "-")
            # Of an extra of its own, this distribution is asked again.
            of = one if name == own.name.lower() else distribution(requirement.name)
            if of is not one:
                found[name] = of
            more = frozenset(requirement.extras)
            if (name, more) not in asked:
                asked.add((name, more))
                ask(of, more)

    ask(own, frozenset(extras))
    return list(found.values())


def _requirements(one: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in one.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement
