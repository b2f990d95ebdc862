"""`import ledger` is light, and what it exports is there."""

from __future__ import annotations

import subprocess
import sys

import ledger


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, ledger; "
        "print([m for m in ('asyncio', 'google.protobuf', 'kazoo', 'grpc', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_client_loads_no_heavy_library() -> None:
    code = (
        "import sys; from ledger import LedgerClient; "
        "print([m for m in ('kazoo', 'grpc', 'pyarrow', 'pyspark', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_exported_name_exists() -> None:
    assert sorted(ledger.__all__) == sorted(ledger._HOMES)
    for name in ledger.__all__:
        assert getattr(ledger, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ledger, "NoSuchThing")
