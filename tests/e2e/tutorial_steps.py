"""Writes the steps of a tutorial as files: `tutorial_steps.py PAGE begin|end|whole FOLDER`.

NNN.sh is typed, NNN.of-PPP.out must be the output of PPP.sh, and NNN.NAME is saved as NAME. `end` is the section
"Clean up".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`:\s*\Z")
_END = "\n## Clean up\n"


def steps(text: str) -> dict[str, str]:
    """Return the steps of a page by the names of their files, in their order."""
    found: dict[str, str] = {}
    for number, block in enumerate(_BLOCK.finditer(text), 1):
        language, content = block.groups()
        saved = _SAVED.search(text, 0, block.start())
        if language == "sh":
            found[f"{number:03}.sh"] = content
        elif language == "text":
            before = next(name for name in reversed(found) if name.endswith(".sh"))
            found[f"{number:03}.of-{before.partition('.')[0]}.out"] = content
        elif saved is not None:
            found[f"{number:03}.{saved[1]}"] = content
        else:
            raise SystemExit(f"a block of {language} is neither typed nor saved:\n{content}")
    return found


def main() -> None:
    """Write the files."""
    page, part, folder = sys.argv[1:]
    text = Path(page).read_text(encoding="utf-8")
    begin, title, end = text.partition(_END)
    if not title:
        raise SystemExit(f"{page}: no section {_END.strip()!r}")
    for name, content in steps({"begin": begin, "end": end, "whole": text}[part]).items():
        (Path(folder) / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
