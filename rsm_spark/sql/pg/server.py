"""PostgreSQL's protocol as a port of a replica of SQL tables: `rsm sql serve --pg-port 5432`."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Coroutine
from typing import Any, Final

from ledger.frame_pot import FramePot
from ledger.http.acceptor import Acceptor
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots
from ledger.open_files import allow_files
from ledger.rights.callers import Callers
from ledger.rights.principal import ClientAccess, Principal, Role, turns_name
from ledger.rights.table import Right, may
from ledger.tls import server_context
from rsm_spark.sql.denials import Refused, nobody_is_told, shown_reason
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.backend import PgBackend
from rsm_spark.sql.pg.connection import PgConnection
from rsm_spark.sql.pg.faults import BAD_AUTHORIZATION, DENIED, NO_DATABASE, TOO_MANY, PgFatalFault, PgFault
from rsm_spark.sql.pg.log_in import LogInOutcome, LogInRules, log_in
from rsm_spark.sql.pg.session import PgSession
from rsm_spark.sql.pg.session_settings import SessionSettings
from rsm_spark.sql.pg.statements import PgStatement
from rsm_spark.sql.pg.tasks import DescribeRows, PgCaller, ReadRows, RowsRead, RunWrites, TranslateQuery, WritesDone
from rsm_spark.sql.pg.transactions import PgTransaction
from rsm_spark.sql.pg.wire import PgCancelRequest, PgStartupRequest
from rsm_spark.sql.scopes import SQL_SCOPES
from rsm_spark.sql.system_tables import sees_all
from rsm_spark.sql.table_rights import rights_of
from rsm_spark.transport.connection_keeper import ConnectionKeeper
from rsm_spark.transport.framed_port import listening_on
from rsm_spark.transport.reach import fault_of
from rsm_spark.transport.security import Security, check_bind

_POT_BYTES_MAX: Final = 256 * 1024 * 1024
_HANDSHAKE_S: Final = 10.0
_NAME_CHARS_MAX: Final = 500
_LOG_IN: Final = "PostgreSQL: log-in"
_STATEMENT: Final = "PostgreSQL: statement"
_FULL: Final = answers.fault(PgFatalFault(TOO_MANY, "too many connections: close some, or share them"))


class PgServer:
    """See the module. The port is bound first; it serves from `start` on.

    Args:
        backend: The tables.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once.
        ports: Number of ports that share the open files of the process.

    Attributes:
        address: "host:port".
        connections: Open ones, strangers too.
        seats: Who has them.
        on_refused: Told of who was not let in, and of statements that clients have no right to.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken. There must be a running event loop.

    """

    def __init__(
        self, backend: PgBackend, *, bind: str, port: int, security: Security, connections_max: int, ports: int
    ) -> None:
        check_bind(bind, security)
        self._backend = backend
        self._callers = Callers(security.principals, security.token_file)
        served = security.served()
        self._tls = None if served is None else server_context(served)
        bound = allow_files(connections_max, ports=ports)
        self.seats = ConnectionSlots(bound, of_owner=max(1, bound // 4), of_address=max(1, bound // 2))
        self._pot = FramePot(_POT_BYTES_MAX, _POT_BYTES_MAX // 2)
        self._rules = LogInRules(
            self._callers.is_open, self._callers.of_token, self._callers.of_certificate, self._callers.by_scram
        )
        self.connections: dict[PgConnection, None] = {}
        self._keeper = ConnectionKeeper(lambda: self.connections)
        # Of those that have logged in.
        self._by_key: dict[tuple[int, int], PgConnection] = {}
        self.on_refused: Refused = nobody_is_told
        self._is_draining = False
        listening, self.address = listening_on(bind, port, what="PostgreSQL's protocol", option="--pg-port")
        self._acceptor = Acceptor(listening, self.seats, self._make, full=_FULL)

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted here."""
        return self._tls is not None

    def start(self) -> None:
        """Take connections; the replica has its state."""
        self._acceptor.open()
        self._keeper.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more connections; end those that are idle, the others when what runs is done, or after a while."""
        self._is_draining = True
        await self._acceptor.close()
        for connection in list(self.connections):
            connection.drain()
        running = [connection.ended for connection in self.connections if not connection.is_done]
        if running:
            await asyncio.wait(running, timeout=grace_s)
        for connection in list(self.connections):
            if not connection.is_done:
                connection.cut()
        self._keeper.stop()
        await self._backend.stop()

    # ---- connections

    def _make(self, slot: ConnectionSlot) -> PgConnection:
        return PgConnection(slot, self._pot, self)

    def opened(self, connection: PgConnection) -> None:
        """See `PgConnectionOwner`."""
        self.connections[connection] = None
        if not connection.slot.is_taken:  # It was given to somebody else meanwhile.
            connection.cut()

    def closed(self, connection: PgConnection) -> None:
        """See `PgConnectionOwner`."""
        self.connections.pop(connection, None)
        self._by_key.pop((connection.process_id, connection.secret), None)
        self.seats.give_back(connection.slot)

    async def encrypt(self, transport: asyncio.Transport, connection: PgConnection) -> asyncio.Transport:
        """See `PgConnectionOwner`."""
        assert self._tls is not None
        loop = asyncio.get_running_loop()
        encrypted = await loop.start_tls(
            transport, connection, self._tls, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
        )
        if encrypted is None:
            raise ConnectionResetError
        return encrypted

    def cancel(self, request: PgCancelRequest) -> None:
        """See `PgConnectionOwner`."""
        found = self._by_key.get((request.process_id, request.secret))
        if found is not None:
            found.cancel_reading()

    def refused(self, connection: PgConnection, why: str) -> None:
        """See `PgConnectionOwner`."""
        self.on_refused(connection.principal, _STATEMENT, connection.peer, shown_reason(why))

    async def enter(self, connection: PgConnection, startup: PgStartupRequest) -> PgSession:
        """See `PgConnectionOwner`."""
        user = startup.parameters.get("user", "")
        if not user or len(user) > _NAME_CHARS_MAX:
            raise PgFatalFault(BAD_AUTHORIZATION, "a client says who it is: the user's name is missing, or too long")
        if self._tls is not None and not connection.is_encrypted:
            raise PgFatalFault(
                BAD_AUTHORIZATION, "this replica speaks over TLS alone: connect with sslmode=require or better"
            )
        if startup.minor or any(name.startswith("_pq_.") for name in startup.parameters):
            options = [name for name in startup.parameters if name.startswith("_pq_.")]
            connection.say(answers.older_protocol(options))
        try:
            found = await self._log_in(connection, user)
        except PgFatalFault as fault:
            self.on_refused(None, _LOG_IN, connection.peer, fault.text)
            raise
        principal = found.principal
        self._check(principal, connection, startup)
        key = None if principal.role in (Role.REPLICA, Role.OPERATOR) else principal.name
        if not self.seats.know(connection.slot, key):
            raise PgFatalFault(TOO_MANY, f"{principal} has its part of this port's connections already: share them")
        connection.caller = PgCaller(turns_name(principal, str(connection.slot.address)), rights_of(principal))
        settings = SessionSettings(user)
        try:
            settings.begin(startup.parameters)
        except PgFault as fault:
            raise PgFatalFault(fault.code, fault.text) from None
        connection.principal, connection.again = principal, found.again
        self._by_key[connection.process_id, connection.secret] = connection
        connection.say(found.last_words)
        return PgSession(settings, may_write=_may_write(principal), is_shown_all=sees_all(principal))

    async def _log_in(self, connection: PgConnection, user: str) -> LogInOutcome:
        nonce = base64.b64encode(os.urandom(18)).decode()
        steps = log_in(user, connection.names(), self._rules, nonce)
        try:
            question = next(steps)
            while True:
                connection.say(question)
                question = steps.send(await connection.secret_said())
        except StopIteration as done:
            found: LogInOutcome = done.value
            return found

    def _check(self, principal: Principal, connection: PgConnection, startup: PgStartupRequest) -> None:
        """Refuse who has no business with these tables, and who looks for others.

        Raises:
            PgFatalFault: It is so.

        """
        log = self._backend.log
        fault = fault_of(principal, log, SQL_SCOPES)
        if not fault and not may(principal, Right.STATE_READ):
            fault = f"{principal} may not read the state of a log"
        if fault:
            self.on_refused(principal, _LOG_IN, connection.peer, fault)
            raise PgFatalFault(DENIED, fault)
        database = startup.parameters.get("database") or startup.parameters.get("user", "")
        if database != log:
            raise PgFatalFault(
                NO_DATABASE, f"there is no database {database!r}: these are the tables of the log {log!r}"
            )

    # ---- what sessions have to have done

    async def translate(self, task: TranslateQuery, owner: str) -> tuple[PgStatement, ...]:
        """See `PgBackend`."""
        return await self._backend.translate(task.sql, owner)

    async def read(self, task: ReadRows, caller: PgCaller) -> RowsRead:
        """See `PgBackend`."""
        return await self._backend.read(task, caller)

    async def describe(self, task: DescribeRows, caller: PgCaller) -> tuple[tuple[str, str], ...]:
        """See `PgBackend`."""
        return await self._backend.describe(task, caller)

    async def begin(self, caller: PgCaller) -> PgTransaction:
        """See `PgBackend`."""
        return await self._backend.begin(caller)

    def write(self, task: RunWrites, caller: PgCaller) -> Coroutine[Any, Any, WritesDone]:
        """See `PgBackend`."""
        return self._backend.write(task, caller)


def _may_write(principal: Principal) -> bool:
    is_reader = principal.role is Role.CLIENT and principal.access is not ClientAccess.WRITE
    return may(principal, Right.STATE_WRITE) and not is_reader
