"""A state machine whose commands are typed methods, whose rows are classes, and which may have parts.

class Account(msgspec.Struct):
    name: str
    balance: int = 0

class InsufficientFunds(DomainError):
    missing: int

class Bank(Service):
    accounts = table(Account)

    @command
    def withdraw(self, name: str, amount: int) -> int:
        account = self.accounts.get(name) or Account(name)
        if account.balance < amount:
            raise InsufficientFunds(amount - account.balance)
        account.balance -= amount
        self.accounts.put(account)
        return account.balance

Record types come from the order of the tables: the first has 16 and 17. So a later version adds tables at the end. A
part's tables stand in a namespace ("bank.accounts"), its record types in a block of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from rsm_spark.core.machine import (
    Decision,
    DeclinedDecision,
    DueRecords,
    MachineDescription,
    RecordDescription,
    Row,
    RowChange,
    TableDescription,
)
from rsm_spark.core.records import MACHINE_TYPE_FIRST, REPLY_BYTES_MAX, pack
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.core.typed_calls import (
    DESCRIBE,
    CallShown,
    TypedCall,
    encode_error,
    encode_value,
    is_json_call,
    split_call,
)
from rsm_spark.core.typed_rows import TABLES, WRITE, shown_tables, write_rows
from rsm_spark.core.typed_tables import Staged, StateTable, records_of
from rsm_spark.core.typed_timers import RETRY_MS, TimedRows, Timer
from rsm_spark.errors import DomainError, InvalidCommandError, InvalidDescriptionError

S = TypeVar("S", bound="Service")

_DUE_BYTES_MAX = 1 << 20
"""Of the records of one call of a timer."""
_BLOCK = 256
"""Record types of a part: the first part has those from 16 + 256 on."""


class ServicePart:
    """A part of a service, as its class has it: ``Shop.bank.transfer`` is a call of the part."""

    def __init__(self, kind: type[Service]) -> None:
        self.kind = kind
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.kind, name)
        call = getattr(method, "rsm_call", None)
        if not isinstance(call, TypedCall):
            return method
        found = partial(method)
        found.__dict__.update(rsm_call=call, rsm_path=f"{self.name}.{name}", __qualname__=method.__qualname__)
        return found


def part(kind: type[S]) -> S:
    """Declare a part of a service in its class: another service, on the same log.

    ``bank = part(Bank)`` gives the service `self.bank`; a command that calls commands of parts is one command, all or
    nothing. The part's own commands can be called too, as "bank.transfer".
    """
    return cast("S", ServicePart(kind))


def compose(name: str, **parts: type[Service]) -> type[Service]:
    """Return a service that is nothing but its parts.

    Args:
        name: Of the service.
        parts: By their names: ``Shop = compose("shop", bank=Bank, outbox=Outbox)``.

    """
    return type(name.title(), (Service,), {one: part(kind) for one, kind in parts.items()}, name=name)


class Service(TableMachine):
    """Base of a service with typed commands; see the module.

    Its class takes ``name=``, which the log is described with (default: the class's in small letters), and
    ``version=`` (default 1); those of its parts are added to it.

    Attributes:
        staged: Changes of the command that is executed now; None = none is.
        now_ms: Logged time of the command that is executed.

    """

    def __init_subclass__(cls, *, name: str = "", version: int = 1, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tables: list[TableDescription] = []
        records: list[RecordDescription] = []
        for number, (attribute, table) in enumerate(_declared(cls, StateTable).items()):
            described, written = table.described(attribute, records_of(number))
            tables.append(described)
            records += written
        for number, (attribute, one) in enumerate(_declared(cls, ServicePart).items(), 1):
            inner = one.kind.description
            version += inner.version
            _check_part(cls, attribute, one.kind)
            tables += [_renamed(table, name=f"{attribute}.{table.name}") for table in inner.tables]
            records += [
                _renamed(
                    record, type=record.type + number * _BLOCK, name=f"{attribute}.{record.name}",
                    table=f"{attribute}.{record.table}" if record.table else "",
                )
                for record in inner.records
            ]  # fmt: skip
        declared = {id(table) for table in _declared(cls, StateTable).values()}
        for method in dir(cls):
            timer = getattr(getattr(cls, method), "rsm_due", None)
            if isinstance(timer, Timer) and id(timer.table) not in declared:
                raise InvalidDescriptionError(
                    f"service {cls.__name__}: timer {method!r} is of a table of another class"
                )
        cls.description = MachineDescription(name or cls.__name__.lower(), version, tuple(tables), tuple(records))

    def __init__(self) -> None:
        self._timers: list[tuple[TimedRows, Service]] = []
        super().__init__()
        self.staged: Staged | None = None
        self.now_ms = 0
        self._root: Service = self
        self._calls: dict[str, tuple[TypedCall, Service]] = {}
        self._state_tables: dict[str, StateTable[Any]] = {}
        self._hold(self, "", 0)

    def _hold(self, root: Service, prefix: str, first: int) -> None:
        """Read and write the tables of a machine, which may be the one that this is a part of."""
        self._root = root
        for number, (name, table) in enumerate(_declared(type(self), StateTable).items()):
            held = root._state_tables[prefix + name] = table.held(root, prefix + name, records_of(number) + first)
            setattr(self, name, held)
        tables = {id(table): name for name, table in _declared(type(self), StateTable).items()}
        for name in dir(type(self)):
            method = getattr(type(self), name)
            call, timer = getattr(method, "rsm_call", None), getattr(method, "rsm_due", None)
            if isinstance(call, TypedCall):
                root._calls[prefix + name] = call, self
            if isinstance(timer, Timer):
                root._timers.append((TimedRows(timer, getattr(self, tables[id(timer.table)])), self))
        for number, (name, one) in enumerate(_declared(type(self), ServicePart).items(), 1):
            inner = one.kind()
            inner._hold(root, f"{prefix}{name}.", number * _BLOCK)
            setattr(self, name, inner)

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what a command has changed that another one called, and which raised."""
        root = self._root
        if root.staged is None:
            raise RuntimeError("a command is executed by its service: send it by a client, or by a MachineHarness")
        before = dict(root.staged)
        self.now_ms = root.now_ms
        try:
            yield
        except BaseException:
            root.staged.clear()
            root.staged.update(before)
            raise

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002 - the machine's interface
        """Execute a command on the present state; see `StateMachine.decide`."""
        is_json = is_json_call(command)
        try:
            name, raw = split_call(command, is_json=is_json)
            changes: Staged = {}
            if name == WRITE:
                self.staged = changes
                count = write_rows(self._state_tables, raw, is_json=is_json)
                return Decision(list(changes.values()), encode_value(count, is_json=is_json))
            call, owner = self._called(name, is_query=False)
            args, kwargs = call.called(raw, is_json=is_json)
            self.staged = changes
            self.now_ms = owner.now_ms = now_ms
            reply = call.encode_reply(call.function(owner, *args, **kwargs), is_json=is_json)
            if len(reply) > REPLY_BYTES_MAX:
                raise ValueError(
                    f"{call.signature}: its reply has {len(reply)} bytes, a reply at most {REPLY_BYTES_MAX}: let a "
                    "query give the rest"
                )
        except (DomainError, InvalidCommandError) as error:
            refusal = encode_error(error, is_json=is_json)
            if len(refusal) > REPLY_BYTES_MAX:
                raise ValueError(
                    f"{type(error).__name__}: this error has {len(refusal)} bytes, a reply at most {REPLY_BYTES_MAX}: "
                    "let it say less"
                ) from error
            return DeclinedDecision((), refusal)
        finally:
            self.staged = None
        return Decision(list(changes.values()), reply)

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002 - the machine's interface
        """Answer a query; see `StateMachine.query`."""
        is_json = is_json_call(query)
        try:
            name, raw = split_call(query, is_json=is_json)
            if name in (DESCRIBE, TABLES):
                shown = self.calls() if name == DESCRIBE else shown_tables(self._state_tables)
                return encode_value(shown, is_json=is_json)
            call, owner = self._called(name, is_query=True)
            args, kwargs = call.called(raw, is_json=is_json)
            return call.encode_reply(call.function(owner, *args, **kwargs), is_json=is_json)
        except (DomainError, InvalidCommandError) as error:
            return encode_error(error, is_json=is_json)

    # ---- time

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which a timer is due next; see `TimedMachine`."""
        firsts = [first for rows, _ in self._timers if (first := rows.first(promoted_ms)) is not None]
        return min((due_ms for due_ms, _ in firsts), default=None)

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterable[DueRecords]:
        """Yield what each timer whose time has come makes of its row, oldest first; see `TimedMachine`."""
        count = 0
        while count < limit:
            found = [(rows.first(promoted_ms), rows, owner) for rows, owner in self._timers]
            firsts = [(*first, rows, owner) for first, rows, owner in found if first is not None]
            due_ms, key, rows, owner = min(firsts, key=lambda one: one[0], default=(now_ms + 1, (), None, None))
            if due_ms > now_ms or rows is None or owner is None:
                return
            try:
                records = self._worked_off(rows, owner, key, now_ms, promoted_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is, other rows do not wait for it
                rows.postpone(key, now_ms + RETRY_MS)
                yield error
                continue
            count += len(records)
            yield records

    def _worked_off(
        self, rows: TimedRows, owner: Service, key: tuple[Any, ...], now_ms: int, promoted_ms: int
    ) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the records of a timer's call for a row."""
        timer, table, changes = rows.timer, rows.table, cast("Staged", {})
        name = f"timer {timer.function.__qualname__}"
        self.staged = changes
        self.now_ms = owner.now_ms = now_ms
        try:
            timer.function(owner, table.get(*key))
        except Exception as error:
            raise RuntimeError(f"{name}, row {key}: {type(error).__name__}: {error}") from error
        finally:
            self.staged = None
        left = table.staged_fields(changes, key)
        due_ms = None if left is None else timer.due_ms(left, promoted_ms)
        if due_ms is not None and due_ms <= now_ms:
            raise RuntimeError(f"{name}, row {key}: it leaves its row due: delete it, or give it a later time")
        records = list(changes.values())
        size = sum(len(pack(fields)) for _, fields in self.loggable(records))
        if size > _DUE_BYTES_MAX:
            raise RuntimeError(f"{name}, row {key}: it changes {size} bytes, {_DUE_BYTES_MAX} are the most")
        return records

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record; see `StateMachine.apply`."""
        change = super().apply(record_type, fields, revision)
        if self._timers and change is not None:
            for rows, _ in self._timers:
                if rows.table.name == change.table:
                    rows.note(self.key_shown(change.table, change.key))
        return change

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state; see `StateMachine.restore`."""
        super().restore(rows)
        self._forget_times()

    def follow(self, description: MachineDescription) -> None:
        """Fold by the description of the log; see `EvolvingMachine`."""
        super().follow(description)
        self._forget_times()

    def _forget_times(self) -> None:
        for rows, _ in self._timers:
            rows.forget()

    def typed_calls(self) -> dict[str, TypedCall]:
        """Return the commands and queries by their names."""
        return {name: call for name, (call, _) in self._calls.items()}

    def calls(self) -> list[CallShown]:
        """Return the commands and queries of the service, by name."""
        return [
            CallShown(
                name,
                call.is_query,
                name.removesuffix(call.name) + call.signature,
                (call.function.__doc__ or "").strip().partition("\n")[0],
            )
            for name, (call, _) in sorted(self._calls.items())
        ]

    def _called(self, name: str, *, is_query: bool) -> tuple[TypedCall, Service]:
        found = self._calls.get(name)
        if found is not None and found[0].is_query is is_query:
            return found
        service, kind = self.description.name, "query" if is_query else "command"
        if found is None:
            known = ", ".join(one for one, (call, _) in sorted(self._calls.items()) if call.is_query == is_query)
            raise InvalidCommandError(f"service {service} has no {kind} {name!r}; it has {known or 'none'}")
        raise InvalidCommandError(f"{name!r} of service {service} is no {kind}: send it as the other")


D = TypeVar("D")


def _declared(cls: type, kind: type[D]) -> dict[str, D]:
    """Return what a class and those above it declare, in order."""
    found: dict[str, D] = {}
    for one in reversed(cls.__mro__):
        found |= {name: value for name, value in vars(one).items() if isinstance(value, kind)}
    return found


def _renamed(described: D, **changes: Any) -> D:
    return cast("D", msgspec.structs.replace(cast("msgspec.Struct", described), **changes))


def _check_part(cls: type[Service], attribute: str, kind: type[Service]) -> None:
    if inner := _declared(kind, ServicePart):
        raise InvalidDescriptionError(
            f"service {cls.__name__}: part {attribute!r} is service {kind.__name__}, which has parts "
            f"({', '.join(inner)}): a part has no parts of its own. Declare these in {cls.__name__} too, and let its "
            "commands call them"
        )
    missing = [
        one.table for one in kind.migrations if f"{attribute}.{one.table}" not in {m.table for m in cls.migrations}
    ]
    if missing:  # Its versions are not those of the whole.
        raise InvalidDescriptionError(
            f"service {cls.__name__}: part {attribute!r} declares a migration of table {missing[0]!r}: declare it in "
            f"{cls.__name__} too, of table '{attribute}.{missing[0]}', with the version of {cls.__name__}"
        )
    if any(record.type >= MACHINE_TYPE_FIRST + _BLOCK for record in kind.description.records):
        raise InvalidDescriptionError(
            f"service {cls.__name__}: part {attribute!r} has record types from {MACHINE_TYPE_FIRST + _BLOCK} on, which "
            f"are those of other parts: a part has at most {_BLOCK // 2} tables"
        )
