from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from ledger.configuration import options_command, process_command
from ledger.errors import UsageError
from ledger.options import MIB, NAMES, NOT, REQUIRED, SECONDS, Option, options_in, take_options
from ledger.path_units import PATH, PATHS


class _Inner(msgspec.Struct, frozen=True, kw_only=True):
    keep_ms: Annotated[int, Option("Kept so long.", name="keep_s", unit=SECONDS, ge=500, le=9_000)] = 1_500
    size: Annotated[int, Option("How large.", name="size_mib", unit=MIB, ge=2 << 20)] = 4 << 20
    is_synced: Annotated[bool, Option("Do not.", name="no_sync", unit=NOT)] = True
    hidden: int = 7


class _Plain(msgspec.Struct, frozen=True):
    number: int = 3


class _Outer(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Option("Who.", variables=("OPTIONS_NAME",))]
    hosts: Annotated[tuple[str, ...], Option("Where.", unit=NAMES)] = ()
    folder: Annotated[str | None, Option("A folder.", unit=PATH)] = None
    folders: Annotated[tuple[str, ...], Option("More.", unit=PATHS)] = ()
    inner: _Inner | None = _Inner(size=8 << 20, hidden=9)
    plain: _Plain = _Plain(5)


def _said(kind: type[msgspec.Struct], arguments: list[str], **more: Any) -> tuple[int, str, list[Any]]:
    """Run a command that takes the Struct; return exit code, output, and what it was given."""
    app, given = typer.Typer(), []

    def run(one: msgspec.Struct) -> None:
        given.append(one)

    run.__annotations__["one"] = kind
    app.command()(process_command("thing")(run) if more.pop("is_process", False) else options_command(run))
    result = CliRunner().invoke(app, arguments, **more)
    return result.exit_code, result.output + str(result.exception or ""), given


def test_options_have_the_default_and_the_bounds_of_the_field_as_they_are_typed() -> None:
    found = {one.name: (one.type, one.default, one.bounds) for one in options_in(_Outer)}
    assert found == {
        "name": (str, REQUIRED, (None, None)),
        "hosts": (str, "", (None, None)),
        "folder": (Path | None, None, (None, None)),
        "folders": (list[Path] | None, None, (None, None)),
        "keep_s": (float, 1.5, (0.5, 9)),
        "size_mib": (int, 8, (2, None)),
        "no_sync": (bool, False, (None, None)),
    }


def test_defaults_are_those_of_the_struct_inside_with_the_fields_that_are_no_options() -> None:
    code, _, (given,) = _said(_Outer, ["--name", "a"])
    assert code == 0
    assert given == _Outer(name="a")
    assert (given.inner.hidden, given.plain.number) == (9, 5)


def test_what_is_typed_becomes_what_the_field_holds() -> None:
    arguments = ["--name", "a", "--hosts", "b, c,", "--folder", "x//y", "--folders", "1", "--folders", "2/",
                 "--keep-s", "2.5", "--size-mib", "3", "--no-sync"]  # fmt: skip
    code, _, (given,) = _said(_Outer, arguments)
    assert code == 0
    inner = _Inner(keep_ms=2_500, size=3 << 20, is_synced=False, hidden=9)
    assert given == _Outer(name="a", hosts=("b", "c"), folder="x/y", folders=("1", "2"), inner=inner)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [([], "--name"), (["--name", "a", "--keep-s", "0.4"], "0.5"), (["--name", "a", "--size-mib", "1"], "equal to 2"),
     (["--name", "a", "--hidden", "1"], "No such option"), (["--name", "a", "--number", "1"], "No such option")],
)  # fmt: skip
def test_what_is_missing_out_of_bounds_or_no_option_is_refused(arguments: list[str], word: str) -> None:
    code, output, given = _said(_Outer, arguments)
    assert (code, given) == (2, [])
    assert word in output


def test_a_flag_goes_before_a_variable_a_variable_before_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "thing.toml"
    conf.write_text('name = "file"\nkeep_s = 3.0\nsize_mib = 5\nfolders = ["f"]\n')
    environment = {"RSM_THING__NAME": "variable", "RSM_THING__KEEP_S": "4"}
    arguments = ["--conf", str(conf), "--name", "flag"]
    _, _, (given,) = _said(_Outer, arguments, is_process=True, env=environment)
    assert (given.name, given.inner.keep_ms, given.inner.size, given.folders) == ("flag", 4_000, 5 << 20, ("f",))
    _, _, (given,) = _said(_Outer, arguments[:2], is_process=True, env={**environment, "OPTIONS_NAME": "shared"})
    assert given.name == "shared"


def test_a_typing_error_in_a_file_or_a_variable_is_told(tmp_path: Path) -> None:
    conf = tmp_path / "thing.toml"
    conf.write_text("kep_s = 3.0\n")
    assert "did you mean 'keep_s'" in _said(_Outer, ["--conf", str(conf)], is_process=True)[1]
    assert "did you mean 'RSM_THING__KEEP_S'" in _said(_Outer, [], is_process=True, env={"RSM_THING__KEP_S": "1"})[1]


def test_a_value_that_its_unit_cannot_read_is_the_units_error() -> None:
    def read(text: str) -> int:
        raise UsageError(f"--what {text}: never")

    kind = msgspec.defstruct(
        "Odd", [("what", Annotated[int, Option("What.", unit=SECONDS._replace(type=str, read=read, tell=str))], 1)]
    )
    with pytest.raises(UsageError, match="--what 5: never"):
        take_options(kind, {"what": "5"})
