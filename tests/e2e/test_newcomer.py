"""A newcomer types README's and the tutorials' commands from an empty environment of Python, with the wheel of now."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.e2e.installed import build_wheel, needs
from tests.e2e.tutorial_steps import steps

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
FIRST = TUTORIALS / "README.md"
PAGES = [TUTORIALS / name for name in re.findall(r"^\| \[[^\]]+\]\((\w+\.md)\)", FIRST.read_text(), re.MULTILINE)]
_CACHE = Path(
    os.environ.get("RSM_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rsm-spark"
)
_PIP = """\
#!/bin/sh
# `pip install '{asked}'`, without a network: of the lock, what that needs, and the wheel.
set -e
umask 022  # What is unpacked stays in the cache, and other environments link to it: jailed users have to read it.
[ "$*" = "install {asked}" ]
{uv} pip install --offline --quiet --python env/bin/python --no-deps --require-hashes --requirements {lock}
{uv} pip install --offline --quiet --python env/bin/python --no-deps {wheel}
"""


def test_there_are_four_tutorials_and_each_says_what_one_will_have_and_how_to_clean_up() -> None:
    assert sorted(PAGES) == sorted(path for path in TUTORIALS.glob("*.md") if path != FIRST)
    assert len(PAGES) == 4
    for page in PAGES:
        text = page.read_text()
        assert text.splitlines()[2].startswith("**What you will have:**"), page
        assert "\n## Clean up\n" in text, page
        assert len(steps(text)) > 5, page


def _locked(extras: set[str]) -> str:
    """Return the lines of the lock for what the package needs with these extras."""
    names = {one.name.lower().replace("_", "-") for one in needs(distribution("rsm-spark"), tuple(sorted(extras)))}
    blocks = re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements.lock").read_text())
    return "\n".join(block for block in blocks if block.partition("==")[0] in names) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_command_of_the_tutorials_works_from_an_empty_environment(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network of its own, with all ports free, needs root and `ip`")
    found = sorted(_CACHE.glob("uv-*/bin/uv"))
    if not found:
        pytest.skip("no uv in the cache: make setup")
    pip = tmp_path / "pip"
    (asked,) = re.findall(r"^pip install '(.*)'$", FIRST.read_text(), re.MULTILINE)
    (tmp_path / "needed.lock").write_text(_locked(Requirement(asked).extras))
    wheel = build_wheel(tmp_path / "dist")
    pip.write_text(_PIP.format(uv=found[-1], lock=tmp_path / "needed.lock", wheel=wheel, asked=asked))
    pip.chmod(0o755)
    uv_cache = subprocess.run([found[-1], "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {**os.environ, "RSM_PIP": str(pip), "UV_CACHE_DIR": uv_cache}
    typed = [ROOT / "tests" / "e2e" / "newcomer.sh", tmp_path / "newcomer", FIRST, *PAGES]
    alone = ["unshare", "--net", "--fork", "--kill-child", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    done = subprocess.run([*alone, *map(str, typed)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert not (tmp_path / "newcomer" / "tutorial").exists(), "the pages clean up what they made"
