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


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Make an environment with a wheel and what it needs with these extras; return its Python.

    What it needs is copied from this environment, by the requirements that each distribution names itself.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, is_shared, place = name.partition(".data/data/")
            target = folder / place if is_shared else site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    (own,) = Distribution.discover(name="rsm-spark", path=[str(site)])
    for needed in needs(own, extras):
        for file in needed.files or ():
            source = Path(str(needed.locate_file(file)))
            if ".." not in file.parts and source.is_file() and not (site / file).exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    return folder / "bin" / "python"


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
