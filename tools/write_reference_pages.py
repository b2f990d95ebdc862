"""Writes the reference that the code tells of itself: commands, HTTP and metrics, in docs/reference.

.venv/bin/python tools/write_reference_pages.py           # as `make reference` does
.venv/bin/python tools/write_reference_pages.py --check   # writes nothing; exit code 1 if one is not current
"""

# ruff: noqa: INP001, T201 - a script

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import typer
from prometheus_client.parser import text_string_to_metric_families

from broker.api import code, events, limits, meta, tasks, tenants, transactions
from broker.api.openapi import describe_api
from ledger.audit_lines import Refusals
from ledger.bookie.pages import BookiePages
from ledger.rights.table import ROLES_OF, Right
from rsm_spark.cli.main import _app as app
from rsm_spark.console.api import ConsoleRequests
from rsm_spark.console.browsing import DataRequests
from rsm_spark.console.task_requests import TaskRequests
from rsm_spark.files.webhdfs.operations import OPERATIONS, PREFIX
from rsm_spark.gateway.names_api import name_routes
from rsm_spark.gateway.openapi import describe_gateway
from rsm_spark.gateway.pages import GatewayPages
from rsm_spark.gateway.reading_api import reading_routes
from rsm_spark.gateway.records_api import record_routes

_ROOT = Path(__file__).resolve().parents[1]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

from tests.unit.rsm_spark.monitoring.exported_metrics import exported_pages  # noqa: E402 - of this checkout

_COMMANDS = """\
# Commands

Written by `make reference` from the commands themselves; `rsm COMMAND --help` tells the same. Exit codes, the same of
all of them: [operations](../operations.md#exit-codes). Options of servers, which stand in files and variables too:
[options of the processes](../process-options.md).
"""
_HTTP = """\
# HTTP

Written by `make reference` from the routes that are served. Each server describes itself for programs, with the types
of all fields: `/api/v1/openapi.json` of a broker, `/v1/openapi.json` of a gateway. What such lists cannot tell:
[the broker over HTTP](../http-api.md), [logs over HTTP](../logs-http.md), [the console](../console.md),
[bookies](../operations.md#watching-bookies-and-auto-recovery).

Every process with `--http-port` answers `GET /metrics` ([metrics](metrics.md)), `/healthz` (it works), `/readyz` (it
can be used now; else 503, and why) and `/status` (what it does, as JSON). Roles are those of
[principals](../security.md), on a port that knows its callers.
"""
_METRICS = """\
# Metrics

Written by `make reference` from the pages that the processes answer at `/metrics`. Counters end in `_total`; of
summaries and histograms there are `_count` and `_sum` too. Rules and dashboards that use them: `rsm monitoring`,
[operations](../operations.md#rules-and-dashboards).
"""
_BOOKIES = """\
BookKeeper's own API; what each call does: [bookies](../operations.md#watching-bookies-and-auto-recovery). A process
that runs auto-recovery alone answers the calls about ledgers, bookies and auto-recovery."""
_CONSOLE = """\
What [the console](../console.md) shows, for programs. Of a client, and of a tenant, it shows what is theirs."""
_FILES = "Calls that the clients of Hadoop know: [files](../files.md#what-webhdfs-serves)."
_PARAGRAPH = re.compile(r"\n\s*\n")


def commands_page() -> str:
    """Return the text of docs/reference/commands.md."""
    return _COMMANDS + "".join(_command_lines(typer.main.get_command(app), "rsm"))


def _command_lines(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    command = context.command
    below = getattr(command, "commands", None)
    if name != "rsm":
        yield f"\n{'##' if name.count(' ') == 1 else '###'} {name}\n\n" + "".join(_help_lines(command.help or ""))
        if not below:
            yield from _option_lines(command, context)
    for one in below or ():
        yield from _command_lines(command.get_command(context, one), f"{name} {one}")


def _help_lines(text: str) -> Iterator[str]:
    """Yield the help of a command as Markdown: what stands below "Examples:" is code."""
    said, _, examples = text.replace("\b", "").partition("Example")
    for paragraph in _PARAGRAPH.split(said.strip()):
        yield " ".join(paragraph.split()).replace("<", "&lt;") + "\n\n"
    typed = [" ".join(one.split()) for one in _PARAGRAPH.split(examples.partition(":")[2].strip()) if one.strip()]
    if typed:
        yield "```sh\n" + "\n".join(typed) + "\n```\n\n"


def _option_lines(command: Any, context: Any) -> Iterator[str]:
    if any("--conf" in option.opts for option in command.params):
        yield "Its options: [options of the processes](../process-options.md).\n"
        return
    rows = [option.get_help_record(context) for option in command.params if "--help" not in option.opts]
    shown = [row for row in rows if row is not None]
    if shown:
        yield "| | |\n| --- | --- |\n"
    for names, told in shown:
        names_told = " ".join(names.split()).replace("|", "\\|")
        yield f"| `{names_told}` | {_cell(told)} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def http_page() -> str:
    """Return the text of docs/reference/http.md."""
    routes = [
        *tasks.routes(), *transactions.routes(), *tenants.routes(), *limits.routes(), *code.routes(), *events.routes(),
        *meta.routes(_nothing, bytes), *meta.page_routes(),
    ]  # fmt: skip
    pages = GatewayPages(None)  # type: ignore[arg-type]
    gateway = [*record_routes(), *reading_routes(), *name_routes(), *pages.own_routes()]
    parts = [
        ("The broker", describe_api(routes, version="")),
        ("The gateway of logs", describe_gateway(gateway, version="")),
    ]
    described = "".join(line for title, text in parts for line in _api_lines(title, msgspec.json.decode(text)))
    return _HTTP + described + "".join(_other_doors())


def _other_doors() -> Iterator[str]:
    """Yield the doors that are for pages and for clients of others: what is served, and who may ask."""
    nothing: Any = SimpleNamespace(store=None, root="")
    bookie = BookiePages(nothing, nothing, Refusals()).routes()
    yield from _door_lines("Bookies and auto-recovery", _BOOKIES, [(to, None, one.right) for to, one in bookie.items()])
    console = [
        *ConsoleRequests(nothing, "").routes(), *DataRequests(nothing, "").routes(), *TaskRequests().routes()
    ]  # fmt: skip
    asked = [(f"{one.method} {one.path}", one.query, one.right) for one in console if one.right is not None]
    yield from _door_lines("The console", _CONSOLE, asked)
    files = [(f"{one.method} {PREFIX}/PATH?op={name}", None, one.right) for name, one in OPERATIONS.items()]
    yield from _door_lines("Files, by WebHDFS", _FILES, files)


def _door_lines(title: str, told: str, asked: Iterable[tuple[str, Any, Right]]) -> Iterator[str]:
    yield f"\n## {title}\n\n{told}\n\n| request | parameters | roles |\n| --- | --- | --- |\n"
    for request, query, right in asked:
        names = () if query is None else query.__struct_fields__
        roles = "every role" if right is Right.STATUS else ", ".join(sorted(role.value for role in ROLES_OF[right]))
        yield f"| `{request}` | {_names(names)} | {roles} |\n"


async def _nothing() -> bytes:
    return b""


def _api_lines(title: str, document: dict[str, Any]) -> Iterator[str]:
    yield f"\n## {title}\n\n{document['info']['description']}\n\n"
    yield "| request | what it does | parameters | body | answers |\n| --- | --- | --- | --- | --- |\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
            names = ", ".join(f"`{one['name']}`{'' if one.get('required') else '?'}" for one in parameters)
            cells = (
                f"`{method.upper()} {path}`",
                _cell(f"{operation['summary']}. {operation.get('description', '')}"),
                names,
                ", ".join(_shapes(operation.get("requestBody", {}))),
                _answers(operation["responses"]),
            )
            yield f"| {' | '.join(cells)} |\n"
    yield "\nWhat the bodies hold; `?` = may be left out:\n\n| body | fields |\n| --- | --- |\n"
    for name, shape in sorted(document["components"]["schemas"].items()):
        required = shape.get("required", ())
        fields = ", ".join(f"`{field}`{'' if field in required else '?'}" for field in shape.get("properties", ()))
        yield f"| {name} | {fields} |\n"


def _answers(responses: dict[str, Any]) -> str:
    good = [f"{status} {', '.join(_shapes(one))}".strip() for status, one in responses.items() if status[0] == "2"]
    bad = [status for status in responses if status[0] != "2"]
    return "; ".join([*good, ", ".join(bad)] if bad else good)


def _shapes(place: dict[str, Any]) -> list[str]:
    """Return the names of the shapes that a body or an answer may have, else their media types."""
    found = []
    for kind, content in place.get("content", {}).items():
        names = re.findall(r"#/components/schemas/(\w+)", msgspec.json.encode(content).decode())
        found += names or [f"`{kind}`"]
    return list(dict.fromkeys(found))


def metrics_page() -> str:
    """Return the text of docs/reference/metrics.md."""
    return _METRICS + "".join(line for kind, text in exported_pages().items() for line in _metric_lines(kind, text))


def _metric_lines(kind: str, text: str) -> Iterator[str]:
    yield f"\n## {kind[0].upper()}{kind[1:]}\n\n| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n"
    for family in text_string_to_metric_families(text):
        labels = sorted({label for sample in family.samples for label in sample.labels})
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield f"| `{name}` | {family.type} | {_names(labels)} | {_cell(family.documentation)} |\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: Sequence[str]) -> int:
    """Write the files, or compare them; return the exit code."""
    pages = {"commands": commands_page(), "http": http_page(), "metrics": metrics_page()}
    folder = _ROOT / "docs" / "reference"
    files = {folder / f"{name}.md": text for name, text in pages.items()}
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        print("".join(f"{path.relative_to(_ROOT)} is not current: run `make reference`\n" for path in stale), end="")
        return int(bool(stale))
    folder.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
