"""Which errors hide the traces of a process of Spark's, and where."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly, told_plainly
from ledger.errors import QuorumLostError

_VARIABLE = "SPARK_HIDE_TRACEBACK"


@tells_plainly("rows", "plan")
class Reader:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def rows(self) -> Iterator[int]:
        yield 1
        if self._error:
            raise self._error

    def plan(self) -> list[int]:
        if self._error:
            raise self._error
        return [1]


@pytest.fixture(params=["pyspark.daemon", "connectors.worker_daemon"])
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(request.param, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setenv(_VARIABLE, "")
    monkeypatch.delenv(_VARIABLE)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("error", [OptionError("wrong"), QuorumLostError("gone")])
def test_our_errors_hide_the_trace_also_behind_rows_that_came(error: Exception) -> None:
    rows = Reader(error).rows()
    assert next(rows) == 1
    assert _VARIABLE not in os.environ
    with pytest.raises(type(error)):
        next(rows)
    assert os.environ[_VARIABLE] == "1"


@pytest.mark.usefixtures("worker")
def test_a_plan_that_fails_hides_it_and_one_that_does_not_is_the_same_list() -> None:
    assert Reader(None).plan() == [1]
    assert list(Reader(None).rows()) == [1]
    assert _VARIABLE not in os.environ
    with pytest.raises(OptionError):
        Reader(OptionError("wrong")).plan()
    assert os.environ[_VARIABLE] == "1"


@pytest.mark.usefixtures("worker")
def test_bugs_and_errors_of_others_keep_their_traces() -> None:
    with pytest.raises(ValueError, match="bug"):
        list(Reader(ValueError("bug")).rows())
    assert _VARIABLE not in os.environ


@pytest.mark.usefixtures("worker")
def test_who_has_set_the_variable_empty_sees_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "")
    with pytest.raises(OptionError):
        Reader(OptionError("wrong")).plan()
    assert os.environ[_VARIABLE] == ""


def test_a_process_of_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "")
    monkeypatch.delenv(_VARIABLE)

    def fail() -> None:
        raise OptionError("wrong")

    with pytest.raises(OptionError):
        told_plainly(fail)()
    assert _VARIABLE not in os.environ
