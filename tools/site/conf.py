"""Settings of Sphinx for the site of the documents: `make docs`.

The pages are the Markdown files as they are, beginning with README.md; the reference comes from the docstrings of the
public packages, which are written in Markdown too. Notebooks are pages as well: their text, their code, and what they
have shown when they were kept.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import nbformat

_ROOT = Path(__file__).resolve().parents[2]
_CONTENTS = """

```{toctree}
:hidden:
:maxdepth: 1
:caption: Begin

docs/tutorials/README
docs/tutorials/service
docs/tutorials/sql
docs/tutorials/tasks
docs/tutorials/spark
notebooks/service
notebooks/sql
notebooks/tasks
notebooks/spark
docs/explained/how-it-works
docs/explained/fencing
docs/explained/leader-dies
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Use

docs/logs
docs/logs-http
docs/logs-grpc
docs/store
docs/etcd
docs/sql
docs/files
docs/machines
docs/testing
docs/broker
docs/http-api
docs/ledger
docs/spark
docs/spark-options
notebooks/ledger_source
docs/guides/from-kafka
docs/guides/from-kafka-and-delta-sinks
docs/guides/dbt
docs/worker-pools
docs/spark-applications
docs/guides/spark-clusters
docs/broker-history
notebooks/broker_history
docs/payloads
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Operate

docs/guarantees
docs/deploy
docs/sizing
docs/containers
docs/operations
docs/console
docs/telemetry
docs/backup
docs/security
docs/figures
CHANGELOG
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Reference

docs/reference/commands
docs/process-options
docs/reference/http
docs/reference/metrics
docs/api/ledger
docs/api/rsm_spark
docs/api/broker
docs/api/connectors
docs/glossary
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Take part

docs/architecture
docs/decisions/README
CONTRIBUTING
SECURITY
CODE_OF_CONDUCT
```
"""
_DECISIONS = """

```{toctree}
:hidden:
:glob:

0*
```
"""

project = "rsm-spark"
release = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "notebooks/*.ipynb"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = [".*", "dist", "build", "tests", "spark-warehouse"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
html_theme = "alabaster"
html_theme_options = {"description": "Services made highly available by a replicated log", "fixed_sidebar": True}
html_copy_source = False
html_show_copyright = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True
python_use_unqualified_type_names = True


def _as_markdown(notebook: str) -> str:
    """Return a notebook as a page: its text, its code, and what each cell has shown."""
    parts = []
    for cell in nbformat.reads(notebook, as_version=4).cells:  # type: ignore[no-untyped-call]
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [f"````ipython3\n{cell.source}\n````", *map(_shown, cell.outputs)]
    return "\n\n".join(parts)


def _shown(output: Any) -> str:
    shown = output.get("data", {"text/plain": output.get("text")})
    if "text/html" in shown:
        return f"````{{raw}} html\n{shown['text/html']}\n````"
    return f"````text\n{shown['text/plain'].rstrip()}\n````"


def _prepare(_app: Any, page: str, source: list[str]) -> None:
    """Make pages of notebooks; take out links to folders, which have no page; put the lists of pages below."""
    here = (_ROOT / page).parent
    if (_ROOT / f"{page}.ipynb").exists():
        source[0] = _as_markdown(source[0])

    def plain(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^\]]+)\]\(([^)#:]+)\)", plain, source[0])
    source[0] += {root_doc: _CONTENTS, "docs/decisions/README": _DECISIONS}.get(page, "")


def _translate(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn marks of Markdown into those of reStructuredText, which autodoc reads: `code`, and indented code."""
    before = ""
    for number, line in enumerate(lines):
        if line.startswith("    ") and not lines[number - 1] and before[:1] not in {"", " ", "*", "-"}:
            lines[number - 1] = "\n::\n"
        else:
            lines[number] = re.sub(r"(?<![`\\:])`([^`\n]+)`(?!`)", r"``\1``", line)
        before = line or before
    lines[:] = "\n".join(lines).split("\n")


def _write_index(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> dict[str, bool]:
    """Connect what this site does on top of Sphinx."""
    app.connect("source-read", _prepare)
    app.connect("autodoc-process-docstring", _translate, priority=400)  # before napoleon, which is at 500
    app.connect("build-finished", _write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
