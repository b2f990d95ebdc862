"""The commands and the Python of docs/files.md do what the page says, on two servers of a cluster of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.rights.file import PrincipalsFile
from tests.integration.file_stores import SERVE
from tests.integration.store_processes import stores

_PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
_SHELL = re.findall(r"^```sh\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
_TEXT = re.findall(r"^```text\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
_CSV = "carrier,flights\nUA,3\nDL,2\n"


@pytest.fixture(scope="module")
def places(own_cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start the two servers of the page; yield where each of its ports is here."""
    folder = tmp_path_factory.mktemp("files-page")
    with stores(own_cluster.metadata_uri, "files", folder) as running:
        found = {}
        for words in map(shlex.split, _SHELL[0].splitlines()):
            if words[:3] == ["rsm", "files", "serve"]:
                data_dir, port = (words[words.index(name) + 1] for name in ("--data-dir", "--http-port"))
                server = running.start(Path(data_dir).name, "--http-port", "0", command=SERVE)
                found[f"localhost:{port}"] = server.ready["http_address"]
        yield found


def _here(text: str, places: dict[str, str]) -> str:
    for told, place in places.items():
        text = text.replace(told, place)
    return text


def test_what_is_typed_first_works(own_cluster: DevCluster, places: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "today.csv").write_text(_CSV)
    environment = {**os.environ, "RSM_METADATA_URI": own_cluster.metadata_uri}
    printed = []
    for line in _here(_SHELL[0], places).splitlines():
        if line.startswith(("curl", "rsm files ls")):
            words = [sys.executable, "-m", *shlex.split(line.replace("rsm ", "rsm_spark "))]
            command = words if line.startswith("rsm") else words[2:]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
            )
            printed.append(done.stdout)
    assert len(printed) == 3
    assert printed[1] == _CSV
    assert "today.csv" in printed[2]


def test_python_reads_moves_and_reads_tables(places: dict[str, str]) -> None:
    (block,) = [text for text in _TEXT if "fsspec" in text]
    address = places["localhost:9870"]
    host, _, port = address.rpartition(":")
    before = (
        "import fsspec, pandas, pyarrow, pyarrow.parquet\n"
        f"store = fsspec.filesystem('webhdfs', host={host!r}, port={port})\n"
        f"store.pipe_file('/in/today.csv', {_CSV.encode()!r})\n"
        "with store.open('/tables/flights', 'wb') as file:\n"
        "    pyarrow.parquet.write_table(pyarrow.table({'n': [1, 2]}), file)\n"
    )
    block = _here(block, places).replace('host="localhost", port=9870', f"host={host!r}, port={port}")
    after = "print(int(flights.flights.sum()), files.exists('/in/2026-11-27.csv'), table.num_rows)\n"
    done = subprocess.run(
        [sys.executable, "-c", before + block + after], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["5", "True", "2"], done.stderr


def test_the_principals_that_are_shown_are_read(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    assert "2f0c…" in block
    file = tmp_path / "principals.toml"
    file.write_text(block.replace("2f0c…", "a" * 64))
    file.chmod(0o600)
    assert PrincipalsFile(str(file), now_s=0.0).count == 1
