"""Every option of the sink `ledger`, as data: what the parser knows and what the documentation lists."""

from __future__ import annotations

from connectors.source.option_table import OPTIONS, OptionInfo

_SHARED = ("metadataUri", "rsmRoot", "otlpUrl", "traceRate")
_KINDS = {
    "map": "writes keys of the replicated map",
    "tasks": "submits tasks to the broker",
    "commands": "sends a command a row to any service",
    "table": "writes rows of an SQL table, or of a service's table",
    "log": "appends to a plain or a partitioned log",
}
_SAID = f"What the rows are: {', '.join(f'`{kind}` {does}' for kind, does in _KINDS.items())}."

SINK_OPTION_TABLE: tuple[OptionInfo, ...] = (
    OptionInfo("log", "a name", "-", "both", "The log to write to; its service, or a gateway of it, must run."),
    OptionInfo("as", " or ".join(f"`{kind}`" for kind in _KINDS), "-", "both", _SAID),
    OptionInfo(
        "table",
        "a name",
        "-",
        "both",
        "With `as=table`: the table that is written to; of a part of a service `part.table`.",
    ),
    OptionInfo(
        "gateway",
        "URLs with commas between them",
        "-",
        "both",
        "With `as=log`: gateways of the log, `rsm log serve`; one of them is enough.",
    ),
    OptionInfo(
        "writer",
        "a name",
        "for a batch, one that is forgotten when it has ended",
        "both",
        "Name under which the log remembers which batches were applied. A stream needs one; two jobs never share one. "
        "A batch without one is written again when its job is run again.",
    ),
    OptionInfo(
        "batch",
        "a number, 0 and up",
        "0",
        "batch",
        "Number of this batch of `writer`: written again, it changes nothing. Inside `foreachBatch`, the batch's id.",
    ),
    OptionInfo(
        "checkpoint",
        "a name",
        "`batch`",
        "batch",
        "What counts the batches of `writer`: the same name, or another writer. Inside `foreachBatch`, the query's id.",
    ),
    OptionInfo(
        "takeOver",
        "the id of a checkpoint",
        "another checkpoint of the same writer is refused",
        "both",
        "Checkpoint whose place this query takes as `writer`: its batches are counted from here on. The refusal names "
        "it.",
    ),
    OptionInfo(
        "conflictPrefix",
        "text",
        "rows in conflict are left out",
        "both",
        "With a column `expected`: what a row in conflict wanted to write is kept under its key behind this prefix.",
    ),
    OptionInfo(
        "columns",
        "names with commas between them",
        "those that a row needs, and of a table all",
        "CREATE TABLE",
        "Columns of the table of the catalog that is made, out of those that rows of this kind may have.",
    ),
    OptionInfo(
        "timeout",
        "a time with its unit like `30s` or `5m`",
        "`2m`",
        "both",
        "How long a task sends a command again while no replica leads, no gateway answers, or a queue is full.",
    ),
    *(option for option in OPTIONS if option.name in _SHARED),
)
"""All options, in the order in which a reader needs them."""

SINK_OPTION_NAMES = tuple(option.name for option in SINK_OPTION_TABLE)
