"""Beginning of a program with a session of a warm server: the process has loaded Spark's client before it is known.

It is run as a file. Standard input has one line of JSON: the program's path, its arguments, and variables of its own.
From then on the process is that program, as if Python had been started with it. Nothing of ours is imported, so that
the program's own modules may have any name.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
from pathlib import Path
from typing import Any


def load() -> None:
    """Import what every such program imports."""
    import pyspark.sql.connect.functions  # noqa: PLC0415 - not for those who read this file
    import pyspark.sql.connect.session  # noqa: F401, PLC0415


def become(told: dict[str, Any]) -> tuple[types.CodeType, dict[str, Any]]:
    """Be a program: return its code, and what it is run in.

    Args:
        told: Its path, args and environment.

    Raises:
        OSError: It cannot be read.
        SyntaxError: It is no program.

    """
    path = told["path"]
    os.environ.update(told["environment"])
    sys.argv[:] = [path, *told["args"]]
    sys.path.insert(0, str(Path(path).parent))
    sys.excepthook = _show
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), module.__dict__


def _show(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Show an error without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    del sys.path[0]  # The folder of this file.
    load()
    line = sys.stdin.buffer.readline()
    sys.stdin.close()
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - the program's
    if line:
        exec(*become(json.loads(line)))  # noqa: S102 - that is what it is for
