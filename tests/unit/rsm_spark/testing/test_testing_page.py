"""docs/testing.md: its tests run, and pass; that of a real cluster in tests/integration."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).resolve().parents[4] / "docs" / "testing.md"


def test_every_test_of_the_page_passes() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL))
    names: dict[str, Any] = {}
    exec(compile(code, "docs/testing.md", "exec"), names)  # noqa: S102 - the page's own code
    tests = [one for name, one in names.items() if name.startswith("test_") and not inspect.iscoroutinefunction(one)]
    assert len(tests) == 5
    for test in tests:
        test()
