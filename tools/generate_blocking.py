"""Write the blocking clients from the asynchronous ones: `make blocking`. With `--check`, only say which are stale.

A public method becomes one of the same name, signature and first line of docstring, which has the asynchronous one run
on the client's thread (`ledger.loop_thread`):

    async def            its result is waited for
    async generator      an iterator
    asynccontextmanager  a context manager
    plain function       called on the thread; an asyncio future that it returns becomes one for any thread
    property             read directly, and so is what `__init__` sets from a parameter or a constant
    connect              makes the client

An argument that is an `Iterable` is made a list first: the caller's generator belongs on the caller's thread. What the
base classes in `blocking_base.py` define by hand is not generated, nor is what `left_out` names below.
"""

# ruff: noqa: INP001 - a script
# Longer than 400 lines: which classes are written stands beside how, in one script that needs no package.

from __future__ import annotations

import ast
import builtins
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parents[1]
_BASES = "ledger.blocking_base"
_WIDTH = 120
_LINES_UNEXPLAINED = 400
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Twin(NamedTuple):
    """A class to write.

    Attributes:
        name: Of the blocking class.
        source: The class that it wraps: "module:name".
        mixins: Further classes, in this order, whose methods the source inherits.
        bases: As they are written; without any, `BlockingCalls` of the source.
        left_out: Public names that mean nothing without an event loop.

    """

    name: str
    source: str
    mixins: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Target(NamedTuple):
    """A module to write.

    Attributes:
        module: Its name.
        docstring: Its own.
        twins: Its classes.
        iterators: Asynchronous iterators with a class of their own, and what they give: "name", or "module:name".

    """

    module: str
    docstring: str
    twins: tuple[Twin, ...]
    iterators: Mapping[str, str] = MappingProxyType({})


_BROKER = Target(
    "broker.client.blocking",
    """The broker's client for programs without an event loop.

    from broker.client import BrokerClient

    with BrokerClient.connect(["http://127.0.0.1:7364"], tenant="acme") as client:
        task_id = client.submit("mail", b"to: ada", priority=5)
        print(client.result(task_id))

        with client.transaction() as transaction:        # all of them or none
            transaction.submit("bill", b"1")
            transaction.submit("bill", b"2")

Same calls, same errors as `broker.client.client.AsyncBrokerClient`, which says what they do; any number of threads may
use one client at once.
""",
    (
        Twin("BlockingTransaction", "broker.client.client:OpenTransaction"),
        Twin(
            "BrokerClient",
            "broker.client.client:AsyncBrokerClient",
            ("broker.client.task_calls:TaskCalls", "broker.client.admin_calls:AdminCalls"),
            ("BlockingBrokerBase",),
            ("event_stream",),  # `events` reads it.
        ),
    ),
)
_MAP = Target(
    "rsm_spark.map.client.blocking",
    """The map's client for programs without an event loop.

    from rsm_spark.map.client.blocking import BlockingMapClient

    with BlockingMapClient.connect(log="orders") as orders:
        orders.put(b"order/1", b"new")
        print(orders.get(b"order/1"))
        for row in orders.scan(prefix=b"order/"):
            print(row.key, row.value)

Same calls, same errors as `rsm_spark.map.client.client.MapClient`; any number of threads may use one client at once,
and calls that wait together travel together.
""",
    (
        Twin(
            "BlockingMapClient",
            "rsm_spark.map.client.client:MapClient",
            (
                "rsm_spark.client.service_calls:ServiceCalls",
                "rsm_spark.map.client.writes:MapWrites",
                "rsm_spark.map.client.leases:MapLeases",
                "rsm_spark.map.client.locks:MapLocks",
                "rsm_spark.map.client.barriers:MapBarriers",
                "rsm_spark.map.client.reads:MapReads",
                "rsm_spark.map.client.watch:MapWatches",
            ),
            ("BlockingMapBase",),
            ("scan_pages", "keep_session"),  # `scan` reads them; programs have a session of their own.
        ),
    ),
    {"MapWatch": "MapChange"},
)
_SERVICE = Target(
    "rsm_spark.client.blocking",
    """The client of any service for programs without an event loop.

    from rsm_spark.client.blocking import BlockingServiceClient

    with BlockingServiceClient.connect("bank") as bank:
        left = bank.call(Bank.transfer, "ann", "bob", 5)

Same calls, same errors as `rsm_spark.client.service_client.ServiceClient`; any number of threads may use one client at
once, and calls that wait together travel together.
""",
    (
        Twin(
            "BlockingServiceClient",
            "rsm_spark.client.service_client:ServiceClient",
            ("rsm_spark.client.service_calls:ServiceCalls",),
            ("BlockingServiceBase",),
            ("watched_replicas", "metadata", "keep_session"),  # For clients that are made of it, and for commands.
        ),
    ),
)
_SQL = Target(
    "rsm_spark.sql.client.blocking",
    """The client of replicated SQL tables for programs without an event loop.

    from rsm_spark.sql import BlockingSqlClient

    with BlockingSqlClient.connect("shop") as shop:
        shop.execute("INSERT INTO item (name) VALUES (?)", ("pen",))
        print(shop.query("SELECT name FROM item").rows)

Same calls, same errors as `rsm_spark.sql.client.client.SqlClient`; any number of threads may use one client at once,
and calls that wait together travel together.
""",
    (
        Twin(
            "BlockingSqlRowStream",
            "rsm_spark.sql.client.row_stream:SqlRowStream",
            bases=("BlockingRowStreamBase",),
            left_out=("open",),  # `BlockingSqlClient.rows` does.
        ),
        Twin(
            "BlockingInteractiveTransaction",
            "rsm_spark.sql.client.transaction:InteractiveTransaction",
            left_out=("begin",),  # `BlockingSqlClient.begin` does.
        ),
        Twin(
            "BlockingSqlClient",
            "rsm_spark.sql.client.client:SqlClient",
            bases=("BlockingSqlBase",),
            left_out=("retry", "keep_session"),  # Its function is a blocking one; programs have a session of their own.
        ),
    ),
    {"SqlChangeStream": "rsm_spark.sql.feed.events:SqlChange"},
)
_LEDGER = Target(
    "ledger.client.blocking",
    """The client for code without an event loop: every call of `LedgerClient` as a plain function.

One background thread runs the loop; several threads may call. For Spark tasks and scripts.
""",
    (
        Twin(
            "BlockingWriteHandle",
            "ledger.client.write_handle:WriteHandle",
            bases=("BlockingWriteBase",),
            left_out=(
                # `append_soon` waits for room; the others are called by connections.
                "drain", "on_stored", "on_responses", "on_unanswered", "on_connected", "on_disconnected",
                "on_unreachable", "sweep",
            ),
        ),
        Twin(
            "BlockingAdvWriteHandle",
            "ledger.client.adv_handle:AdvWriteHandle",
            bases=("BlockingWriteHandle",),
            left_out=("append", "append_many"),  # Refused there as here.
        ),
        # Blocks are for the connectors, which run loops of their own.
        Twin("BlockingReadHandle", "ledger.client.read_handle:ReadHandle", left_out=("blocks",)),
        Twin(
            "BlockingLedgerClient",
            "ledger.client.client:LedgerClient",
            bases=("BlockingLedgerBase",),
            left_out=("store", "ledgers"),  # Asynchronous themselves; see `asynchronous`.
        ),
    ),
)  # fmt: skip
_LOGS = Target(
    "rsm_spark.logs.blocking",
    """Plain logs for programs without an event loop.

    from rsm_spark.logs.blocking import BlockingLogs

    with BlockingLogs.connect() as logs:
        logs.create("clicks")
        with logs.open_writer("clicks") as writer:
            appended = [writer.append(b"%d" % number) for number in range(100)]     # futures
            print(appended[-1].result())
        with logs.reader("clicks", follow=False) as reader:
            for record in reader:
                print(record.position, record.payload)

Same calls, same errors as `rsm_spark.logs.namespace.Logs`; any number of threads may use one object at once.
""",
    (
        Twin(
            "BlockingPlainLogWriter",
            "rsm_spark.logs.record_writer:PlainLogWriter",
            bases=("BlockingWriterBase",),
            # `open_writer` does; and the partitioned log does with its partitions.
            left_out=("open", "become_partition", "writers", "append_marked"),
        ),
        Twin(
            "BlockingPlainLogReader",
            "rsm_spark.logs.record_reader:PlainLogReader",
            bases=("BlockingReaderBase",),
            left_out=("read_shown",),  # For readers of several partitions.
        ),
        Twin(
            "BlockingPartitionedLogWriter",
            "rsm_spark.logs.partitioned_writer:PartitionedLogWriter",
            bases=("BlockingPartitionedWriterBase",),
            left_out=("open",),  # `open_partitioned_writer` does.
        ),
        Twin(
            "BlockingPartitionedLogReader",
            "rsm_spark.logs.partitioned_reader:PartitionedLogReader",
            bases=("BlockingPartitionedReaderBase",),
            left_out=("open",),  # `partitioned_reader` does.
        ),
        Twin(
            "BlockingLogs",
            "rsm_spark.logs.namespace:Logs",
            ("rsm_spark.logs.partitioned_logs:PartitionedLogs", "rsm_spark.logs.log_names:LogNames"),
            ("BlockingLogsBase",),
        ),
    ),
)
_GATEWAY = Target(
    "rsm_spark.gateway_client.blocking",
    """The client of gateways of logs for programs without an event loop.

    from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient

    with BlockingLogGatewayClient.connect(["http://127.0.0.1:8090"]) as client:
        client.producer("visits").append(b"page=/")
        for record in client.tail("visits", "begin"):
            print(record.place, record.payload)

Same calls, same errors as `rsm_spark.gateway_client.client.LogGatewayClient`; any number of threads may use one client
at once.
""",
    (
        Twin("BlockingGatewayProducer", "rsm_spark.gateway_client.producer:GatewayProducer"),
        Twin(
            "BlockingLogGatewayClient",
            "rsm_spark.gateway_client.client:LogGatewayClient",
            bases=("BlockingGatewayBase",),
        ),
    ),
)
TARGETS = (_LEDGER, _SERVICE, _MAP, _SQL, _BROKER, _LOGS, _GATEWAY)


class Source:
    """A parsed module: its classes, and where its names come from."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.text = path_of(module).read_text()
        self.imports: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.own: set[str] = set()
        for node in ast.parse(self.text).body:
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.Import():
                self.imports |= {alias.asname or alias.name: _import(alias) for alias in node.names}
            case ast.ImportFrom():
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = f"from {node.module} {_import(alias)}"
            case ast.ClassDef():
                self.classes[node.name] = node
                self.own.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.own.add(name)
                self.constants[name] = self.segment(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.own.add(name)
                self.constants[name] = self.segment(value)
            case _:
                pass

    def segment(self, node: ast.expr) -> str:
        """Return an expression as it is written."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def functions(self, name: str) -> list[_Function]:
        """Return the functions of a class, in order."""
        return [node for node in self.classes[name].body if isinstance(node, _Function)]


class Writer:
    """Writes one module."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._sources: dict[str, Source] = {}
        self._imports: dict[str, str] = {}
        self.hides_builtins = False
        self._wrapped = {twin.source.partition(":")[2]: twin.name for twin in target.twins}
        self._hand_module = target.module.rpartition(".")[0] + ".blocking_base"

    def text(self) -> str:
        """Return the module, as ruff formats it."""
        classes = [self._class(twin) for twin in self._target.twins]
        names = ", ".join(f'"{twin.name}"' for twin in sorted(self._target.twins))
        own = {twin.name for twin in self._target.twins}
        imports = sorted({line for name, line in self._imports.items() if name not in own})
        doc = f"{self._target.docstring}\nWritten by tools/generate_blocking.py: `make blocking` writes it anew.\n"
        names_of_builtins = ["# ruff: noqa: A002 - what it is called everywhere"] * self.hides_builtins
        head = [f'"""{doc}"""', *names_of_builtins, "", "from __future__ import annotations", *imports]
        path = path_of(self._target.module)
        text = _formatted("\n".join([*head, f"__all__ = [{names}]", *classes]), path)
        if text.count("\n") <= _LINES_UNEXPLAINED:
            return text
        why = "# Longer than 400 lines: written by a program, and one client."
        return _formatted("\n".join([head[0], why, *head[1:], f"__all__ = [{names}]", *classes]), path)

    def _source(self, module: str) -> Source:
        if module not in self._sources:
            self._sources[module] = Source(module)
        return self._sources[module]

    def _class(self, twin: Twin) -> str:
        module, _, name = twin.source.partition(":")
        bases = twin.bases or (f"BlockingCalls[{name}]",)
        by_hand = {"__init__"} | set(twin.left_out)
        for base in bases:
            by_hand |= self._use_base(base)
        if bases[0].startswith("BlockingCalls[") or bases[0] in self._wrapped.values():
            self.add(name, f"from {module} import {name}")
        lines = [f"class {twin.name}({', '.join(bases)}):", f'    """`{name}` for code that blocks."""']
        if bases[0] in self._wrapped.values():
            lines += [f"    asynchronous: {name}"]
        seen = set(by_hand)
        for place in (twin.source, *twin.mixins):
            source_module, _, source_name = place.partition(":")
            source = self._source(source_module)
            for attribute, kind, doc in _attributes(source, source_name):
                if attribute not in seen and bases[0] not in self._wrapped.values():
                    lines += self._property(source, attribute, kind, f'"""{doc}"""')
            for function in source.functions(source_name):
                if not function.name.startswith("_") and function.name not in seen:
                    seen.add(function.name)
                    lines += _Method(self, source, name, function).lines()
        return "\n".join(lines) + "\n"

    def _use_base(self, base: str) -> set[str]:
        """Have a base class imported; return what it and its own bases define by hand."""
        name = base.partition("[")[0]
        if name in self._wrapped.values():
            return set()
        module = _BASES if name == "BlockingCalls" else self._hand_module
        self._imports[name] = f"from {module} import {name}"
        return set(self._defined(self._source(module), name))

    def _defined(self, source: Source, name: str) -> Iterator[str]:
        yield from (function.name for function in source.functions(name))
        for base in source.classes[name].bases:
            inner = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(inner, ast.Name) and inner.id.startswith("Blocking"):
                yield from self._defined(source if inner.id in source.classes else self._source(_BASES), inner.id)

    def _property(self, source: Source, name: str, kind: str, doc: str) -> list[str]:
        self.use(source, ast.parse(kind, mode="eval").body)
        return [
            "    @property", f"    def {name}(self) -> {kind}:", f"        {doc}",
            f"        return self.asynchronous.{name}", "",
        ]  # fmt: skip

    def use(self, source: Source, *expressions: ast.expr) -> None:
        """Have imported what expressions name."""
        for expression in expressions:
            for node in ast.walk(expression):
                if isinstance(node, ast.Name):
                    self._use_name(source, node.id)

    def _use_name(self, source: Source, name: str) -> None:
        if name in source.imports:
            line = source.imports[name]
        elif name in source.own:
            line = f"from {source.module} import {name}"
        elif hasattr(builtins, name):
            return
        else:
            raise SystemExit(f"{source.module}: nobody defines {name}, which the blocking client needs")
        if self._imports.setdefault(name, line) != line:
            raise SystemExit(f"{self._target.module}: {name} means two things: {line}; {self._imports[name]}")

    def add(self, name: str, line: str) -> None:
        """Have a name imported."""
        self._imports[name] = line

    def wrapper(self, kind: str) -> str | None:
        """Return the blocking class for what has this type."""
        return self._wrapped.get(kind)

    def given(self, kind: str) -> str | None:
        """Return what an iterator with a class of its own gives."""
        module, _, name = (self._target.iterators.get(kind) or "").rpartition(":")
        if module:
            self.add(name, f"from {module} import {name}")
        return name or None


class _Method:
    """Writes one method."""

    def __init__(self, writer: Writer, source: Source, class_name: str, function: _Function) -> None:
        self._writer = writer
        self._source = source
        self._class_name = class_name
        self._function = function
        self._decorators = [ast.unparse(node) for node in function.decorator_list]
        assert function.returns is not None, f"{source.module}: {function.name} has no type"
        self._returns = function.returns

    def lines(self) -> list[str]:
        function, is_async = self._function, isinstance(self._function, ast.AsyncFunctionDef)
        kind = self._source.segment(self._returns)
        outer, item = (
            kind.removesuffix("]").split("[", 1)
            if kind.endswith("]") and "|" not in kind.partition("[")[0]
            else (kind, "")
        )
        call = f"self.asynchronous.{function.name}({self._arguments()})"
        if "property" in self._decorators:
            return self._written(kind, [f"return self.asynchronous.{function.name}"], ["@property"])
        if "classmethod" in self._decorators:
            self._writer.use(self._source, ast.Name(self._class_name))
            made = f"{self._class_name}.{function.name}({self._arguments()})"
            return self._written(kind, [f"return cls(lambda: {made})"], ["@classmethod"])
        if "contextlib.asynccontextmanager" in self._decorators:
            return self._context(item, call)
        if given := self._writer.given(kind):
            return self._iterator(given, call)
        if is_async and outer in ("AsyncIterator", "AsyncGenerator"):
            return self._iterator(item.removesuffix(", None"), call)
        if is_async:
            run = f"self.thread.run({call})"
        elif outer == "asyncio.Future":
            self._writer.add("Future", "from concurrent.futures import Future")
            self._writer.add("settled", "from ledger.loop_thread import settled")
            return self._written(f"Future[{item}]", [f"return settled(self.thread.ask({_later(call)}))"])
        else:
            run = f"self.thread.ask({_later(call)})"
        if kind == "None":
            return self._written(kind, [run])
        if wrapper := self._writer.wrapper(kind):
            return self._written(wrapper, [f"return {wrapper}(self.thread, {run})"])
        return self._written(kind, [f"return {run}"])

    def _iterator(self, item: str, call: str) -> list[str]:
        self._writer.add("Iterator", "from collections.abc import Iterator")
        return self._written(f"Iterator[{item}]", [f"return self.thread.iterate({call})"])

    def _context(self, item: str, call: str) -> list[str]:
        self._writer.add("Iterator", "from collections.abc import Iterator")
        self._writer.add("contextlib", "import contextlib")
        wrapper = self._writer.wrapper(item)
        entered = f"{wrapper}(self.thread, entered)" if wrapper else "entered"
        body = [f"with self.thread.enter({call}) as entered:", f"    yield {entered}"]
        return self._written(f"Iterator[{wrapper or item}]", body, ["@contextlib.contextmanager"])

    def _written(self, kind: str, body: list[str], decorators: Sequence[str] = ()) -> list[str]:
        self._writer.use(self._source, *self._needed(kind))
        head = [*decorators, f"def {self._function.name}({self._parameters()}) -> {kind}:"]
        return [*(f"    {line}" for line in head), *self._docstring(), *(f"        {line}" for line in body), ""]

    def _needed(self, kind: str) -> Iterator[ast.expr]:
        """Yield the expressions whose names have to be imported."""
        for node in ast.walk(ast.parse(kind, mode="eval")):
            if isinstance(node, ast.Name) and (node.id in self._source.imports or node.id in self._source.own):
                yield node
        for argument in _all_arguments(self._function.args):
            if argument.annotation is not None:
                yield argument.annotation
        for default in (*self._function.args.defaults, *self._function.args.kw_defaults):
            if default is not None and not self._is_private(default):
                yield default

    def _is_private(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id.startswith("_") and node.id in self._source.constants

    def _default(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and self._is_private(node):
            return self._source.constants[node.id]
        return self._source.segment(node)

    def _parameters(self) -> str:
        """Return the parameters as they are written."""
        args = self._function.args
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        parts = [self._parameter(*pair) for pair in zip(positional, defaults, strict=True)]
        if args.vararg:
            parts.append("*" + self._parameter(args.vararg, None))
        elif args.kwonlyargs:
            parts.append("*")
        parts += [self._parameter(*pair) for pair in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        if args.kwarg:
            parts.append("**" + self._parameter(args.kwarg, None))
        return ", ".join(parts)

    def _parameter(self, argument: ast.arg, default: ast.expr | None) -> str:
        self._writer.hides_builtins |= hasattr(builtins, argument.arg)
        kind = "" if argument.annotation is None else f": {self._source.segment(argument.annotation)}"
        value = "" if default is None else f"{' = ' if kind else '='}{self._default(default)}"
        return f"{argument.arg}{kind}{value}"

    def _arguments(self) -> str:
        """Return the arguments that hand the parameters on."""
        args = self._function.args
        parts = [self._argument(one) for one in [*args.posonlyargs, *args.args][1:]]
        parts += [f"*{args.vararg.arg}"] if args.vararg else []
        parts += [f"{one.arg}={self._argument(one)}" for one in args.kwonlyargs]
        parts += [f"**{args.kwarg.arg}"] if args.kwarg else []
        return ", ".join(parts)

    def _argument(self, argument: ast.arg) -> str:
        kind = "" if argument.annotation is None else self._source.segment(argument.annotation)
        return f"list({argument.arg})" if kind.startswith("Iterable[") else argument.arg

    def _docstring(self) -> list[str]:
        whole = ast.get_docstring(self._function) or ""
        first, _, more = whole.partition("\n\n")
        first = " ".join(first.split())
        if not more:
            return [f'        """{first}"""']
        see = f"See `{self._class_name}.{self._function.name}`."
        line = f'        """{first} {see}"""'
        if len(line) <= _WIDTH and not first.endswith(":"):
            return [line]
        if "contextlib.asynccontextmanager" in self._decorators:
            see += " What it raises while the block runs is told at the end of the block."
        return [f'        """{first}', "", f"        {see}", '        """']


def _later(call: str) -> str:
    """Return a function that makes a call."""
    return call.removesuffix("()") if call.endswith("()") else f"lambda: {call}"


def path_of(module: str) -> Path:
    """Return the file of a module."""
    return _ROOT / (module.replace(".", "/") + ".py")


def _import(alias: ast.alias) -> str:
    return f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")


def _all_arguments(args: ast.arguments) -> list[ast.arg]:
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *(one for one in (args.vararg, args.kwarg) if one)]


def _attributes(source: Source, class_name: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and docstring of what `__init__` sets from a parameter or a constant, if the class tells it."""
    text = ast.get_docstring(source.classes[class_name]) or ""
    told = dict(re.findall(r"^    (\w+): (.+)$", text.partition("Attributes:\n")[2], re.MULTILINE))
    for function in source.functions(class_name):
        if function.name != "__init__":
            continue
        kinds = {one.arg: one.annotation for one in _all_arguments(function.args)}
        for node in function.body:
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=given)) if name in told:
                    kind = kinds[given]
                    assert kind is not None, f"{source.module}: {class_name}.{name} has no type"
                    yield name, source.segment(kind), told[name]
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=value)) if name in told:
                    yield name, type(value).__name__, told[name]
                case _:
                    pass


def _formatted(text: str, path: Path) -> str:
    """Return a module with its imports sorted and its lines broken, by the rules of the project."""
    ruff = Path(sys.executable).parent / "ruff"
    name = ("--stdin-filename", str(path), "-")
    for command in (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet")):
        done = subprocess.run(
            [ruff, *command, *name], input=text, cwd=_ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"ruff {command[0]} refuses what {path} should be: {done.stderr}")
        text = done.stdout
    return text


def write(*, is_check: bool) -> int:
    """Write the modules, or with `is_check` show what would change; return the exit code."""
    stale = 0
    for target in TARGETS:
        path, text = path_of(target.module), Writer(target).text()
        found = path.read_text() if path.exists() else ""
        if found == text:
            continue
        stale += 1
        if is_check:
            name = str(path.relative_to(_ROOT))
            lines = difflib.unified_diff(found.splitlines(), text.splitlines(), name, "generated", lineterm="")
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.write(f"{name} is not what tools/generate_blocking.py writes: run `make blocking`\n")
        else:
            path.write_text(text)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    raise SystemExit(write(is_check="--check" in sys.argv[1:]))
