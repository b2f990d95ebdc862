"""Clients of a gateway's gRPC in other languages are generated from `logs.proto`, as docs/logs-grpc.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[4]


def test_the_commands_of_the_document_make_a_client_with_every_method(tmp_path: Path) -> None:
    text = (_ROOT / "docs" / "logs-grpc.md").read_text()
    (commands,) = re.findall(r"```sh\n(cp .*?)```", text, re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    generated = (tmp_path / "logs_pb2_grpc.py").read_text()
    assert (tmp_path / "logs_pb2.py").exists()
    declared = re.findall(r"^  rpc (\w+)\(", (_ROOT / "rsm_spark" / "gateway" / "logs.proto").read_text(), re.MULTILINE)
    assert len(declared) > 8
    assert set(re.findall(r"self\.(\w+) = channel\.", generated)) == set(declared)
