"""SQLAlchemy's dialect over the DB-API: `create_engine("rsm:///shop")`. The only module that knows SQLAlchemy.

SQL is SQLite's, so is SQLAlchemy's compiler; connections, transactions and errors are those of `rsm_spark.sql.dbapi`.

    rsm:///shop                         the log `shop`, found as the environment says (`RSM_METADATA_URI`)
    rsm://zookeeper-1:2181/shop         in this ZooKeeper
    rsm:///shop?metadata_uri=…          at this address of the metadata store
    …?timeout_s=5&rsm_root=/rsm         further arguments of `rsm_spark.sql.connect`

`create_async_engine` takes the same addresses; its connections are those of `connect_async`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sqlalchemy import exc, pool, util
from sqlalchemy.connectors.asyncio import AsyncAdapt_dbapi_connection
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine import URL

_METADATA_PATH = "/ledgers"
_INTERNAL_PREFIX = "_rsm_"


class RsmDialect(SQLiteDialect):
    """See the module; registered as `rsm` and `rsm+dbapi`."""

    name = "sqlite"  # What the statements are; programs compile theirs by it.
    driver = "dbapi"
    supports_statement_cache = True
    default_paramstyle = "qmark"
    supports_sane_multi_rowcount = True
    update_returning_multifrom = True

    @classmethod
    def get_async_dialect_cls(cls, url: URL) -> type[SQLiteDialect]:  # noqa: ARG003
        """Return the dialect of engines for programs with an event loop."""
        return AsyncRsmDialect

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return the module of the DB-API."""
        from rsm_spark.sql import dbapi  # noqa: PLC0415 - SQLAlchemy asks when it connects first

        return dbapi

    def create_connect_args(self, url: URL) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments of `connect` for an address.

        Raises:
            ArgumentError: It has no log, or what is not known.

        """
        arguments: dict[str, Any] = dict(url.query)
        if not url.database:
            raise exc.ArgumentError(f"{url}: the log is missing: write rsm:///LOG")
        if url.username or url.password:
            raise exc.ArgumentError("rsm: has no user: who a client is says its token, in RSM_TOKEN_FILE")
        uri = arguments.pop("metadata_uri", None)
        if url.host:
            if uri is not None:
                raise exc.ArgumentError("a host and metadata_uri both say where the metadata store is: write one")
            place = url.host if url.port is None else f"{url.host}:{url.port}"
            uri = f"zk+hierarchical://{place}{_METADATA_PATH}"
        known: dict[str, Any] = {"log": url.database}
        if "timeout_s" in arguments:
            known["timeout_s"] = float(arguments.pop("timeout_s"))
        if "rsm_root" in arguments:
            known["rsm_root"] = arguments.pop("rsm_root")
        if arguments:
            raise exc.ArgumentError(f"rsm: does not know {', '.join(sorted(arguments))}")
        return (uri,), known

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        """Return the version of SQLite at the replicas."""
        found = connection.exec_driver_sql("SELECT sqlite_version()").scalar()
        connection.rollback()
        return tuple(int(part) for part in str(found).split("."))

    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:  # noqa: ARG002
        """Return the only schema of a log."""
        return ["main"]

    def get_table_names(
        self, connection: Any, schema: Any = None, sqlite_include_internal: Any = False, **kw: Any
    ) -> list[str]:
        """Return the tables; those of the replica itself are no clients' business."""
        known: Any = super()
        found = known.get_table_names(connection, schema, sqlite_include_internal, **kw)
        return [name for name in found if not name.startswith(_INTERNAL_PREFIX)]

    def get_isolation_level_values(self, dbapi_conn: Any) -> Sequence[Any]:  # noqa: ARG002
        """Return the levels that there are."""
        return ("SERIALIZABLE", "AUTOCOMMIT")

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Return the level of a connection."""
        return "AUTOCOMMIT" if dbapi_connection.autocommit else "SERIALIZABLE"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Set it; what is open is committed."""
        dbapi_connection.autocommit = level == "AUTOCOMMIT"

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:  # noqa: ARG002
        """Return whether a connection is of no more use: it finds a new leader by itself."""
        return isinstance(e, self.loaded_dbapi.InterfaceError) and "is closed" in str(e)


class AsyncRsmConnection(AsyncAdapt_dbapi_connection):
    """A connection of `connect_async`, as SQLAlchemy's own code calls it from its greenlet."""

    __slots__ = ()

    @property
    def autocommit(self) -> bool:
        """See `AsyncDatabaseConnection`. To set it commits what is open."""
        return bool(self._connection.autocommit)

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.commit()
        self._connection.autocommit = value


class AsyncRsmFactory:
    """Stands for the module of the DB-API, and makes connections for SQLAlchemy's greenlets."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Return what the module has."""
        return getattr(self._module, name)

    def connect(self, *arguments: Any, async_creator_fn: Any = None, **options: Any) -> AsyncRsmConnection:
        """Return a connection."""
        make = self._module.connect_async if async_creator_fn is None else async_creator_fn
        return AsyncRsmConnection(self, util.await_only(make(*arguments, **options)))


class AsyncRsmDialect(RsmDialect):
    """See the module: the dialect of `create_async_engine`."""

    is_async = True
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the module of the DB-API."""
        return AsyncRsmFactory(super().import_dbapi())

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:  # noqa: ARG003
        """Return the pool of connections that are waited for without blocking."""
        return pool.AsyncAdaptedQueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        """Return the connection of the DB-API itself."""
        return connection._connection
