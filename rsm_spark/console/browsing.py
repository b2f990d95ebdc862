"""Look into a log: its records from a revision on, keys of a map, rows of SQL tables. Everything here only reads.

Who may see what belongs to all may read every log, so the console reads for those callers with its own log-in. Whoever
may read some logs alone is read for with the token that it has shown: the replica decides which keys and tables it has,
and whether it may touch the log at all. Each use is a line of the audit that names the caller. What one answer holds is
bounded: rows, bytes of a value, time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ledger.client.client import LedgerClient
from ledger.http.problems import HttpProblem, retry_after
from ledger.rights.file import bearer_token
from ledger.rights.table import Right
from rsm_spark.cli.terminal import shown
from rsm_spark.client.leader_finder import FoundReplica
from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.console.calls import ConsoleCall, ConsoleRoute, log_of
from rsm_spark.console.console_turns import ConsoleTurns
from rsm_spark.console.core.callers import records_fault, sees_all
from rsm_spark.core.operation import Message
from rsm_spark.errors import AccessDeniedError, InvalidCommandError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.described_records import log_rows
from rsm_spark.log.discovery import Discovery
from rsm_spark.map.client.calls import scan_range
from rsm_spark.map.client.client import MapClient
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.errors import SqlError
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.security import HeldToken, Security

_ANSWER_S: Final = 15.0
_CALL_S: Final = 10.0
_AT_ONCE: Final = 4
_OF_CALLER: Final = 2
_ROWS_MAX: Final = 200
_SCANNED_MAX: Final = 5_000
_TEXT_MAX: Final = 2_000
_SQL_MAX: Final = 4_000
_BYTES_MAX: Final = 1024 * 1024
_NOTHING: Final = Message(1, b"", opens_session=False, answered_up_to=0, commands=[], queries=[])
"""Message that asks for nothing: to have it answered takes the right to the log."""


class RecordsOfQuery(msgspec.Struct, frozen=True):
    """First revision, or 0 for the last ones; how many records at most; only those of a type; "" = all."""

    from_revision: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=_ROWS_MAX)] = 50
    type: Annotated[str, Meta(max_length=100)] = ""


class MapQuery(msgspec.Struct, frozen=True):
    """Beginning of the keys, the key to go on with (UTF-8, or "0x" and hex digits), how many keys at most."""

    prefix: Annotated[str, Meta(max_length=1_000)] = ""
    start: Annotated[str, Meta(max_length=4_000)] = ""
    limit: Annotated[int, Meta(ge=1, le=_ROWS_MAX)] = 50


class SqlTextQuery(msgspec.Struct, frozen=True):
    """One statement that only reads."""

    sql: Annotated[str, Meta(min_length=1, max_length=_SQL_MAX)]


class RecordRow(msgspec.Struct, frozen=True):
    """One record of a log; fields as text, long ones cut."""

    revision: int
    type: str
    logged_ms: int
    epoch: int
    ledger_id: int
    entry_id: int
    fields: dict[str, str]


class RecordsView(msgspec.Struct, frozen=True):
    """Records of a log, in order.

    Attributes:
        rows: So many as were asked for, or as fit.
        first_revision: Of the log as it is now.
        next_revision: From which on to ask for more; 0 = these were the last ones.

    """

    rows: list[RecordRow]
    first_revision: int
    next_revision: int


class MapKeyRow(msgspec.Struct, frozen=True):
    """One key of a map; `is_cut` = its value is longer."""

    key: str
    value: str
    bytes: int
    revision: int
    is_cut: bool


class MapKeys(msgspec.Struct, frozen=True):
    """Keys of a map, all as of one revision; `next_start` = where to go on, "" = there are no more."""

    rows: list[MapKeyRow]
    revision: int
    next_start: str


class SqlView(msgspec.Struct, frozen=True):
    """Rows of a statement, all as of one revision; `is_cut` = there are more."""

    columns: list[str]
    rows: list[list[str | None]]
    revision: int
    is_cut: bool


class DataRequests:
    """See the module.

    Args:
        client: Of the ledgers.
        rsm_root: Root of the logs.

    """

    def __init__(self, client: LedgerClient, rsm_root: str) -> None:
        self._client = client
        self._root = rsm_root
        self._turns = ConsoleTurns("looks into logs", at_once=_AT_ONCE, of_caller=_OF_CALLER, answer_s=_ANSWER_S)

    def routes(self) -> list[ConsoleRoute]:
        """Return what is served."""
        right = Right.STATE_READ
        return [
            ConsoleRoute("/api/v1/logs/{log}/records", self.records, right, RecordsOfQuery, is_audited=True),
            ConsoleRoute("/api/v1/logs/{log}/map", self.map, right, MapQuery, is_audited=True),
            ConsoleRoute("/api/v1/logs/{log}/sql", self.sql, right, SqlTextQuery, is_audited=True),
        ]

    async def records(self, call: ConsoleCall) -> RecordsView:
        """Tell records from a revision on."""
        query: RecordsOfQuery = call.query
        async with self._turn(call) as log:
            await self._check_records(call, log)
            chain, _ = await ChainStore(self._client.store, log, self._root).read()
            begin = chain.ledgers[0].first_revision if chain.ledgers else 1
            last = self._last_revision(call, log, begin)
            span = _SCANNED_MAX if query.type else query.limit
            first = max(begin, query.from_revision or last - span + 1)
            rows: list[RecordRow] = []
            size = seen = 0
            async for told in log_rows(self._client, log, self._root, first, follow=False, limit=_SCANNED_MAX):
                if len(rows) >= query.limit or size >= _BYTES_MAX:
                    return RecordsView(rows, begin, told["revision"])
                seen += 1
                if query.type in ("", told["type"]):
                    rows.append(record_row(told))
                    size += sum(map(len, rows[-1].fields.values()))
            return RecordsView(rows, begin, first + seen if seen == _SCANNED_MAX else 0)

    async def map(self, call: ConsoleCall) -> MapKeys:
        """Tell keys of a map."""
        query: MapQuery = call.query
        prefix = key_of(query.prefix)
        if call.caller.principal.prefix.startswith(prefix):
            prefix = call.caller.principal.prefix  # It has no others.
        begin, end = scan_range(prefix, None, None)
        start = max(begin, key_of(query.start))
        async with self._turn(call) as log:
            _check_machine(call, log, "map")
            client = MapClient(self._finder(log), log, timeout_s=_CALL_S, security=as_caller(call))
            try:
                page = await client.scan_page(start, end, limit=query.limit)
            finally:
                await client.close()
        rows: list[MapKeyRow] = []
        for one in page.rows:
            text, is_cut = value_text(one.value)
            rows.append(MapKeyRow(key_text(one.key), text, len(one.value), one.revision, is_cut))
        return MapKeys(rows, page.revision, "" if page.next_start is None else key_text(page.next_start))

    async def sql(self, call: ConsoleCall) -> SqlView:
        """Tell rows of a statement; one that would write is refused by the replica."""
        query: SqlTextQuery = call.query
        async with self._turn(call) as log:
            _check_machine(call, log, "sql")
            link = ReplicaConnection(self._finder(log), log, security=as_caller(call))
            client = SqlClient(ServiceClient(link, timeout_s=_CALL_S), log)
            try:
                async with await client.rows(query.sql) as found:
                    rows: list[list[str | None]] = []
                    size = 0
                    async for row in found:
                        if len(rows) >= _ROWS_MAX or size >= _BYTES_MAX:
                            return SqlView([name for name, _ in found.columns], rows, found.revision, is_cut=True)
                        rows.append([None if value is None else value_text(value)[0] for value in row])
                        size += sum(len(text or "") for text in rows[-1])
                    return SqlView([name for name, _ in found.columns], rows, found.revision, is_cut=False)
            except SqlError as error:
                raise HttpProblem(400, "sql", str(error)[:_TEXT_MAX]) from None
            finally:
                await client.close()

    def _finder(self, log: str) -> FoundReplica:
        return FoundReplica(Discovery(self._client.store, log, self._root), is_watched=False)

    def _last_revision(self, call: ConsoleCall, log: str, begin: int) -> int:
        """Return the last revision as far as it is known; a plain log tells its own only where a ledger is closed."""
        row = next((one for one in call.state.watcher.view.logs if one.log == log), None)
        return max(begin, 0 if row is None else row.revision)

    async def _check_records(self, call: ConsoleCall, log: str) -> None:
        """Refuse who may not read all of a log: by what is known of it here, and by the word of its leader.

        Raises:
            HttpProblem: 403, or 503: nobody can say.
            AccessDeniedError: The leader refuses it.
            ConnectionLostError: The leader does not answer.

        """
        if fault := records_fault(call.caller.principal):
            raise HttpProblem(403, "not-allowed", fault)
        security = as_caller(call)
        row = next((one for one in call.state.watcher.view.logs if one.log == log), None)
        if security is None or (row is not None and row.is_plain):
            return  # A plain log has no replica to ask: its gateway admits by name, as was done here.
        address = await self._finder(log).find(lambda: None)
        if address is None:
            said = f"whether you may read the records of {log} is for its leader to say, and it has none at the moment"
            raise HttpProblem(503, "not-now", said, headers=retry_after(1))
        channel = ReplicaChannel(address, log, security=security)
        try:
            await channel.call(_NOTHING, _CALL_S)
        finally:
            await channel.close()

    @contextlib.asynccontextmanager
    async def _turn(self, call: ConsoleCall) -> AsyncIterator[str]:
        """Enter when it is the caller's turn, with the name of the log.

        Raises:
            HttpProblem: The caller waits for as many answers as it may, there is no log that it may see, or a replica
                refuses it.
            TimeoutError: It takes too long.

        """
        log = log_of(call)
        async with self._turns.turn(call.caller.name):
            try:
                yield log
            except (AccessDeniedError, InvalidCommandError) as error:
                if sees_all(call.caller.principal):
                    raise
                raise HttpProblem(403, "not-allowed", str(error)[:_TEXT_MAX]) from None


def _check_machine(call: ConsoleCall, log: str, wanted: str) -> None:
    """Refuse to ask a machine what it does not understand.

    Raises:
        HttpProblem: 400.

    """
    row = next((one for one in call.state.watcher.view.logs if one.log == log), None)
    if row is not None and row.machine and row.machine != wanted:
        raise HttpProblem(400, "wrong-machine", f"the machine of log {log} is {row.machine}, not {wanted}")


def as_caller(call: ConsoleCall) -> Security | None:
    """Return as whom a replica is asked for a caller; None = as the console itself.

    Raises:
        HttpProblem: 403: the caller has shown a certificate, and that cannot be shown on.

    """
    if sees_all(call.caller.principal):
        return None
    shown = call.headers.get(b"authorization")
    if shown is None:
        said = "the console can show your token to a replica, and no certificate: ask with a token, or ask the replica"
        raise HttpProblem(403, "needs-token", said)
    # No certificate of its own: the replica is to know the caller alone.
    return Security(tls_ca=Security.from_environment().tls_ca, held_token=HeldToken(bearer_token(shown)))


def record_row(told: dict[str, Any]) -> RecordRow:
    """Return a record of `log_rows` as it is shown."""
    fields = {str(name)[:_TEXT_MAX]: value_text(value)[0] for name, value in told["fields"].items()}
    return RecordRow(
        told["revision"], told["type"], told["logged_ms"], told["leader_epoch"], told["ledger_id"], told["entry_id"],
        fields,
    )  # fmt: skip


def value_text(value: Any) -> tuple[str, bool]:
    """Return a value as text, and whether that is cut: bytes as UTF-8 where they are, else as "0x" and hex digits."""
    if isinstance(value, bytes):
        text = key_text(value[: 4 * _TEXT_MAX])
    elif isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(shown(value)).decode()
    return (f"{text[:_TEXT_MAX]}…", True) if len(text) > _TEXT_MAX else (text, False)


def key_text(key: bytes) -> str:
    """Return a key as text: UTF-8 where it is and would be read back as the same, else "0x" and hex digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return f"0x{key.hex()}" if text.startswith("0x") or "\x00" in text else text


def key_of(text: str) -> bytes:
    """Return the key of a text; see `key_text`.

    Raises:
        HttpProblem: 400: what follows "0x" is no hex digits.

    """
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        raise HttpProblem(400, "invalid", f"{text[:100]!r}: pairs of hex digits follow 0x") from None
