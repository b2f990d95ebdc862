"""Parameters of a WebHDFS request: names in any case, as Hadoop takes them; values of a few types.

Hadoop's clients send more than a file store needs (`blocksize`, `replication`, `user.name`): what an operation does not
ask for is passed over.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from rsm_spark.files.errors import FileError, FileFault

_PAIRS_MAX = 40
_DIGITS_MAX = 20


class WebHdfsParameters:
    """Parameters of one request.

    Args:
        text: Query string, as it was sent.

    Raises:
        FileError: `INVALID`: it is none, or a name is there twice.

    """

    def __init__(self, text: bytes) -> None:
        self._values: dict[str, str] = {}
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PAIRS_MAX)
        except ValueError:
            raise _invalid(f"the query is not UTF-8, or has more than {_PAIRS_MAX} parameters") from None
        for name, value in pairs:
            key = name.lower()
            if key in self._values:
                raise _invalid(f"parameter {name[:40]!r} is there twice")
            self._values[key] = value

    def text(self, name: str, default: str = "") -> str:
        """Return a value as it is."""
        return self._values.get(name, default)

    def demanded(self, name: str) -> str:
        """Return a value that has to be there.

        Raises:
            FileError: `INVALID`: it is not.

        """
        value = self._values.get(name, "")
        if not value:
            raise _invalid(f"the operation needs the parameter {name!r}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return "true" or "false".

        Raises:
            FileError: `INVALID`: it is neither.

        """
        value = self._values.get(name, "").lower()
        if value in ("", "true", "false"):
            return default if not value else value == "true"
        raise _invalid(f"parameter {name!r} is true or false")

    def number(self, name: str) -> int | None:
        """Return a whole number; None = it is not there, or is "null".

        Raises:
            FileError: `INVALID`: it is none.

        """
        value = self._values.get(name, "")
        if value in ("", "null"):
            return None
        if len(value) > _DIGITS_MAX or not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit():
            raise _invalid(f"parameter {name!r} is a whole number")
        return int(value)

    def permission(self, name: str, default: int) -> int:
        """Return octal digits as a number.

        Raises:
            FileError: `INVALID`: they are none.

        """
        value = self._values.get(name, "")
        if not value:
            return default
        if len(value) > 4 or any(digit not in "01234567" for digit in value) or int(value, 8) > 0o1777:
            raise _invalid(f"parameter {name!r} is 0 to 1777, in octal digits")
        return int(value, 8)


def _invalid(why: str) -> FileError:
    return FileError(FileFault.INVALID, why)
