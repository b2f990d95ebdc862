"""Options of Structs on a job's command line: the same names, units, bounds and words as a command has."""

from __future__ import annotations

import argparse
from typing import Annotated

import msgspec
import pytest

from broker.worker.work_options import WorkOptions
from connectors.job_options import add_options, options_from
from ledger.errors import UsageError
from ledger.options import MIB, Option


class _Inner(msgspec.Struct, frozen=True):
    size: Annotated[int, Option("Size, in MiB.", name="size_mb", unit=MIB, ge=1 << 20)] = 4 << 20


class _Outer(msgspec.Struct, frozen=True):
    name: Annotated[str, Option("Its name.")]
    share: Annotated[float | None, Option("In 100 % of all.", le=1.0)] = None
    is_quick: Annotated[bool, Option("Not slow.", name="quick")] = False
    hidden: int = 7
    inner: _Inner = _Inner()


def _given(kind: type[msgspec.Struct], *arguments: str, without: tuple[str, ...] = ()) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser.add_argument_group("it"), kind, without=without)
    return parser.parse_args(arguments)


def test_arguments_become_the_struct() -> None:
    given = _given(_Outer, "--name", "a", "--share", "0.5", "--quick", "--size-mb", "2")
    assert options_from(_Outer, given) == _Outer("a", 0.5, is_quick=True, inner=_Inner(2 << 20))
    assert options_from(_Outer, _given(_Outer, "--name", "a")) == _Outer("a")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--name", "a", "--size-mb", "0"), "0: expected 1 or more"),
        (("--name", "a", "--share", "2"), "2: expected 0 to 1"),
        (("--name", "a", "--size-mb", "x"), "'x' is no int"),
    ],
)
def test_a_value_beyond_its_bounds_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=said):
        _given(_Outer, *arguments)


def test_what_a_job_has_no_use_for_is_no_argument_and_has_its_default() -> None:
    given = _given(WorkOptions, "--threads", "8", "--types", "a=2,b", without=("worker_id", "code_dir"))
    assert not hasattr(given, "worker_id")
    work = options_from(WorkOptions, given)
    assert (work.worker.threads, work.worker.code_dir) == (8, None)
    assert work.settings("w").types == {"a": 2, "b": 8}
    with pytest.raises(UsageError, match="worker id"):
        work.settings("")


def test_a_pool_hands_all_of_it_on_as_json() -> None:
    given = _given(WorkOptions, "--tasks", "m", "--resources", "gpu=1", "--groups", "1,0", "--grant-network", "a,b")
    work = options_from(WorkOptions, given)
    assert msgspec.json.decode(msgspec.json.encode(work), type=WorkOptions) == work
