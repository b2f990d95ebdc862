"""`rsm map txn`: a transaction, written as JSON."""

from __future__ import annotations

import base64
import binascii
import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.terminal import print_json, shown
from rsm_spark.map import messages as m
from rsm_spark.map.cli.connection import MapOptions
from rsm_spark.map.client.calls import scan_range

_COMPARED: tuple[m.Compared, ...] = get_args(m.Compared)
_OPERATIONS = {
    "put": {"value", "ttl_ms", "lease"},
    "get": set[str](),
    "delete": set[str](),
    "delete_range": set[str](),
    "increment": {"amount"},
}


@options_command
def txn(
    at: MapOptions,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read it from this file, not from standard input.")
    ] = None,
) -> None:
    """Do several things at once, or others, or nothing; exit code 7 if the comparisons did not hold.

    The transaction is JSON: {"if": [comparison, ...], "then": [operation, ...], "else": [operation, ...]}, each part
    may be left out. A comparison has "key" and one of "value", "revision", "create_revision", "version", "exists";
    "relation" is =, !=, < or >.
    Operations: {"put": key, "value": v, "ttl_ms": n | "lease": n}, {"get": key}, {"delete": key},
    {"delete_range": {"prefix": p} | {"start": s, "end": e}}, {"increment": key, "amount": n}. What is no text is
    written as {"base64": "..."}.

    Examples:
        echo '{"if": [{"key": "a", "value": "10"}],
               "then": [{"increment": "a", "amount": -10}, {"increment": "b", "amount": 10}],
               "else": [{"get": "a"}]}' | rsm map txn --log accounts

        rsm map txn --file move.json --log accounts --json

    """
    text = sys.stdin.buffer.read() if file is None else _contents(file)
    compares, then, orelse = transaction_of(text)

    result = at.ask(lambda client: client.transact(compares, then, orelse))
    done = then if result.succeeded else orelse
    results = [_shown(operation, one) for operation, one in zip(done, result.results, strict=True)]
    if at.json:
        print_json({"succeeded": result.succeeded, "revision": result.revision, "results": results})
    else:
        typer.echo(f"the comparisons {'held' if result.succeeded else 'did not hold'}; revision {result.revision}")
        for one in results:
            typer.echo("  " + ", ".join(f"{name} {value}" for name, value in one.items()))
    if not result.succeeded:
        raise typer.Exit(ExitCode.CONFLICT)


def transaction_of(text: bytes) -> tuple[list[m.Compare], list[m.Operation], list[m.Operation]]:
    """Read a transaction: comparisons, what to do if they hold, what else.

    Raises:
        UsageError: It is none; the message says what is wrong with it, and where.

    """
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the transaction is no JSON: {error}") from error
    parts = _object(found, "the transaction", {"if", "then", "else"})
    lists: dict[str, list[Any]] = {}
    for name in ("if", "then", "else"):
        part = parts.get(name, [])
        if not isinstance(part, list):
            raise UsageError(f'"{name}" of the transaction is a list, not {type(part).__name__}')
        lists[name] = part
    return (
        [_compare(one, f'"if" {index}') for index, one in enumerate(lists["if"], start=1)],
        [_operation(one, f'"then" {index}') for index, one in enumerate(lists["then"], start=1)],
        [_operation(one, f'"else" {index}') for index, one in enumerate(lists["else"], start=1)],
    )


def _compare(found: Any, where: str) -> m.Compare:
    one = _object(found, where, {"key", "relation", *_COMPARED})
    what = [name for name in _COMPARED if name in one]
    if "key" not in one or len(what) != 1:
        raise UsageError(f"{where}: a comparison has a key and one of {', '.join(_COMPARED)}")
    relation = one.get("relation", "=")
    if relation not in {"=", "!=", "<", ">"}:
        raise UsageError(f"{where}: the relation is =, !=, < or >, not {relation!r}")
    operand = one[what[0]]
    if what[0] == "value":
        operand = _bytes(operand, f"{where}, value")
    compare = m.Compare(_bytes(one["key"], f"{where}, key"), what[0], relation, operand)
    if compare.fault is not None:
        raise UsageError(f"{where}: {compare.fault}")
    return compare


def _operation(found: Any, where: str) -> m.Operation:
    kinds = [name for name in _OPERATIONS if isinstance(found, dict) and name in found]
    if len(kinds) != 1:
        raise UsageError(f"{where}: an operation has one of {', '.join(_OPERATIONS)}")
    kind = kinds[0]
    one = _object(found, where, {kind, *_OPERATIONS[kind]})
    if kind == "delete_range":
        given = _object(one[kind], f"{where}, delete_range", {"prefix", "start", "end"})
        bounds = {name: _bytes(value, f"{where}, {name}") for name, value in given.items()}
        if not bounds:
            raise UsageError(f'{where}: a range has a prefix, or start and end; {{"start": ""}} is all keys')
        return m.DeleteRange(*scan_range(bounds.get("prefix", b""), bounds.get("start"), bounds.get("end")))
    key = _bytes(one[kind], f"{where}, {kind}")
    match kind:
        case "get":
            return m.Read(key)
        case "delete":
            return m.Delete(key)
        case "increment":
            return m.Increment(key, _number(one.get("amount", 1), f"{where}, amount"))
    if "value" not in one:
        raise UsageError(f"{where}: a put has a value")
    value = _bytes(one["value"], f"{where}, value")
    ttl_ms, lease = (_number(one.get(name, 0), f"{where}, {name}") for name in ("ttl_ms", "lease"))
    return m.PutExpiring(key, value, ttl_ms, lease) if ttl_ms or lease else m.Put(key, value)


def _object(found: Any, where: str, names: Iterable[str]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UsageError(f"{where} is an object, not {type(found).__name__}")
    known = sorted(names)
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise UsageError(
                f"{where} has no field {name!r}"
                + (f": did you mean {near[0]!r}?" if near else f" ({', '.join(known)})")
            )
    return found


def _bytes(found: Any, where: str) -> bytes:
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, dict) and list(found) == ["base64"] and isinstance(found["base64"], str):
        try:
            return base64.b64decode(found["base64"], validate=True)
        except binascii.Error as error:
            raise UsageError(f"{where} is no base64: {error}") from error
    raise UsageError(f'{where} is text, or {{"base64": "..."}}, not {found!r}')


def _number(found: Any, where: str) -> int:
    if type(found) is not int:
        raise UsageError(f"{where} is an integer, not {found!r}")
    return found


def _shown(operation: m.Operation, result: m.OperationResult) -> dict[str, Any]:
    key = getattr(operation, "key", None)
    told: dict[str, Any] = {} if key is None else {"key": shown(key)}
    match result:
        case m.Written(revision):
            return {**told, "revision": revision}
        case m.Seen():
            return {**told, **msgspec.structs.asdict(result), "value": shown(result.value)}
        case m.Incremented(number, revision):
            return {**told, "value": number, "revision": revision}
        case m.Removed(count, revision):
            return {"keys": count, "revision": revision}
        case _:
            return {**told, "found": False}


def _contents(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the transaction from {file}: {error.strerror}") from error
