"""A mapper is found by its name, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.machine.commands import TaskSpec
from broker.server.mappers import load_mapper
from ledger.errors import UsageError

_SOURCE = """
from broker.machine.mapping import Mapped

number = 7

def of_task(tenant, type, task):
    return Mapped(priority=5) if tenant == "gold" else None
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the working directory."""
    (tmp_path / "mapper_rules.py").write_text(_SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "mapper_rules"


def test_a_function_in_the_working_directory_is_found(rules: str) -> None:
    mapper = load_mapper(f"{rules}:of_task")
    mapped = mapper("gold", "mail", TaskSpec("mail"))
    assert mapped is not None
    assert mapped.priority == 5
    assert mapper("tin", "mail", TaskSpec("mail")) is None


@pytest.mark.parametrize("name", ["", "rules", ":of_task", "no_such_module:f", "{}:nothing", "{}:number"])
def test_a_name_that_is_none_is_refused(rules: str, name: str) -> None:
    with pytest.raises(UsageError, match="--mapper"):
        load_mapper(name.format(rules))
