"""Writes what is generated from the options of the processes: conf/*.toml and docs/process-options.md.

.venv/bin/python tools/write_process_pages.py           # as `make conf` does
.venv/bin/python tools/write_process_pages.py --check   # writes nothing; exit code 1 if one is not current
"""

# ruff: noqa: INP001, T201 - a script

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rsm_spark.cli.config import PROCESSES, ProcessOption, example_file, options_of, run_words

_ROOT = Path(__file__).resolve().parents[1]
_HEAD = """\
# Options of the processes

Written by `make conf` from the settings in the code. A key of `PROCESS.toml` is also the flag `--key`, with `-` for
`_`, of the command that runs the process, and the variable `RSM_PROCESS__KEY`. How they go before each other is told in
[operations](operations.md#configuration).
"""


def options_page() -> str:
    """Return the text of docs/process-options.md."""
    return _HEAD + "".join(line for process in PROCESSES for line in _section(process))


def _section(process: str) -> Iterator[str]:
    yield f"\n## `{run_words(process)}`\n\n| key | default | values | meaning |\n| --- | --- | --- | --- |\n"
    for option in options_of(process):
        cells = (f"`{option.name}`", _default(option), option.values, option.text)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(option: ProcessOption) -> str:
    if option.is_required:
        return "has to be given"
    return option.told or (f"`{option.default}`" if option.default not in ("", '""') else "")


def main(arguments: Sequence[str]) -> int:
    """Write the files, or compare them; return the exit code."""
    pages = {f"conf/{process}.toml": example_file(process) for process in PROCESSES}
    pages["docs/process-options.md"] = options_page()
    stale = [name for name, text in pages.items() if not (_ROOT / name).is_file() or (_ROOT / name).read_text() != text]
    if "--check" in arguments:
        print("".join(f"{name} is not current: run `make conf`\n" for name in stale), end="")
        return int(bool(stale))
    for name in stale:
        (_ROOT / name).write_text(pages[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
