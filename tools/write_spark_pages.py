"""Writes what is generated from the code of the Spark side: docs/spark-options.md and conf/spark-defaults.conf.

.venv/bin/python tools/write_spark_pages.py           # as `make conf` does
.venv/bin/python tools/write_spark_pages.py --check   # writes nothing; exit code 1 and a diff if one is not current
"""

# ruff: noqa: INP001, T201 - a script

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from connectors.sink.option_table import SINK_OPTION_TABLE
from connectors.source import schema
from connectors.source.option_table import OPTIONS, OptionInfo
from connectors.source.schema import RowColumn
from connectors.spark_settings import SPARK_SETTINGS, When, defaults_file
from connectors.state.option_table import STATE_OPTION_TABLE
from connectors.state.rows import ROWS_DDL

_ROOT = Path(__file__).resolve().parents[1]
_HEAD = """\
# Options and columns of the sources `ledger` and `ledger_state`

Written by `make conf` from the code: `option_table.py` of `connectors/source` and of `connectors/state`,
`connectors/source/schema.py`, `connectors/state/rows.py` and `connectors/spark_settings.py`. What the sources are for
and what they promise is told in [spark.md](spark.md).

Names of options are taken in any case, as Spark takes them; an unknown one is an error that names the nearest right
one.

## Options of `ledger`

*Applies to* says where an option may be given: to a batch read, to a stream, or to both.

"""
_STATE_HEAD = """
## Options of `ledger_state`

Batch reads only.

"""
_COLUMNS_HEAD = """
## Columns of `ledger`

With the option `columns` the others are left out. Times are UTC.
"""
_STATE_COLUMNS = """
## Columns of `ledger_state`

Without `table`, rows of all tables: the canonical msgpack bytes of key and other columns, and the revision of the
record that last wrote the row.

```
{ddl}
```

With `table`, the columns of its key and of its row, typed, and `_revision`.
"""
_SINK_HEAD = """
## Options of the sink `ledger`

For `df.write` and `df.writeStream`; see [writing](spark.md#writing).

"""
_SETTINGS_HEAD = """
## Settings of Spark

`connectors.session.spark_session` sets these where the user has set nothing; `conf/spark-defaults.conf` has them for
spark-submit.

"""
# What the columns of each kind of row are, in the words of the schema's module.
_ROWS = {
    "raw": schema.RAW_COLUMNS,
    "records": schema.RECORD_COLUMNS,
    "kafka": (*schema.KAFKA_COLUMNS, schema.KAFKA_HEADERS),
    "table": (schema.FOLD_COLUMN, schema.REVISION_COLUMN, schema.LOGGED_COLUMN, schema.EXTRA_COLUMN),
}
_KINDS = {
    When.ALWAYS: "always",
    When.POOL: "worker pools",
    When.INSTALLED: "a local master; a cluster that has this package everywhere",
    When.LOCAL: "a local master",
    When.LOCAL_CHECKPOINT: "a local master and a local checkpoint",
    When.DELTA: "Delta by Spark",
    When.LOCAL_DELTA: "Delta by Spark, a local master",
}


def options_page() -> str:
    """Return the text of docs/spark-options.md."""
    state_columns = _STATE_COLUMNS.format(ddl=ROWS_DDL.replace(", ", ",\n"))
    options = (
        _HEAD,
        *_options(OPTIONS),
        _STATE_HEAD,
        *_options(STATE_OPTION_TABLE),
        _SINK_HEAD,
        *_options(SINK_OPTION_TABLE),
    )
    return "".join((*options, _COLUMNS_HEAD, *_columns(), state_columns, _SETTINGS_HEAD, *_settings()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _options(options: Sequence[OptionInfo]) -> Iterator[str]:
    is_told = options is not STATE_OPTION_TABLE
    titles = ["option", "values", "default", *(["applies to"] if is_told else []), "meaning"]
    yield _row(titles)
    yield _row(["---"] * len(titles))
    for option in options:
        applies = [option.applies] if is_told else []
        yield _row([f"`{_name(option)}`", option.values, option.default, *applies, option.meaning])


def _name(option: OptionInfo) -> str:
    return f"{option.name}<key>" if option.name.endswith(".") else option.name


def _columns() -> Iterator[str]:
    told = _paragraphs(inspect.getdoc(schema) or "")
    for rows, columns in _ROWS.items():
        lacking = [column.name for column in columns if not re.search(rf"\b{column.name}\b", told[rows])]
        if lacking:
            raise SystemExit(f"connectors/source/schema.py does not tell what {', '.join(lacking)} of rows={rows} are")
        yield f"\n### `rows={rows}`\n\n{told[rows]}\n\n```\n{_ddl(columns)}\n```\n"


def _ddl(columns: Sequence[RowColumn]) -> str:
    return ",\n".join(f"{column.name} {column.type}" for column in columns)


def _paragraphs(text: str) -> dict[str, str]:
    """Cut the docstring into what it tells of each kind of rows."""
    parts = re.split(r"^`rows=(\w+)`", text, flags=re.MULTILINE)[1:]
    return {
        rows: f"`rows={rows}`{told}".strip().replace(" |\n| | ", " ")
        for rows, told in zip(parts[::2], parts[1::2], strict=True)
    }


def _settings() -> Iterator[str]:
    yield _row(["setting", "value", "for", "why"])
    yield _row(["---"] * 4)
    for setting in SPARK_SETTINGS:
        value = setting.value.replace("{cores}", "cores of the machine") or "files of the cache"
        yield _row([f"`{setting.key}`", f"`{value}`" if setting.value else value, _KINDS[setting.when], setting.why])


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; say what is not current")
    arguments = parser.parse_args(argv)
    stale = False
    for name, text in (("docs/spark-options.md", options_page()), ("conf/spark-defaults.conf", defaults_file())):
        path = _ROOT / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale = True
        if arguments.check:
            lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, "from the code", lineterm="", n=0)
            print("\n".join(lines))
        else:
            path.write_text(text, encoding="utf-8")
    if arguments.check and stale:
        print("run `make conf`")
    return int(arguments.check and stale)


if __name__ == "__main__":
    sys.exit(main())
