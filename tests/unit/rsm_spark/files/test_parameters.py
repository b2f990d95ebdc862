"""Parameters of WebHDFS requests: as Hadoop's clients send them, and as nobody should."""

from __future__ import annotations

import pytest

from rsm_spark.files.errors import FileError
from rsm_spark.files.webhdfs.parameters import WebHdfsParameters


def test_names_are_taken_in_any_case_and_what_nobody_asks_for_is_passed_over() -> None:
    given = WebHdfsParameters(
        b"op=CREATE&Overwrite=TRUE&permission=640&blocksize=1&user.name=a%20b&length=null&offset=7"
    )
    assert given.flag("overwrite") is True
    assert given.flag("recursive") is False
    assert given.permission("permission", 0o644) == 0o640
    assert given.permission("unmaskedpermission", 0o644) == 0o644
    assert given.text("user.name") == "a b"
    assert (given.number("offset"), given.number("length"), given.number("accesstime")) == (7, None, None)
    assert given.demanded("op") == "CREATE"


@pytest.mark.parametrize("text", [b"a=1&A=2", b"x=%ff", b"a=\xff", b"&".join(b"p%d=1" % one for one in range(41))])
def test_what_is_no_query_is_refused(text: bytes) -> None:
    with pytest.raises(FileError):
        WebHdfsParameters(text)


def test_values_of_other_types_are_refused() -> None:
    given = WebHdfsParameters(b"overwrite=yes&offset=1e3&length=-&permission=8&n=%C2%B2&wide=77777")
    for ask in (
        lambda: given.flag("overwrite"),
        lambda: given.number("offset"),
        lambda: given.number("length"),
        lambda: given.number("n"),
        lambda: given.permission("permission", 0),
        lambda: given.permission("wide", 0),
        lambda: given.demanded("destination"),
    ):
        with pytest.raises(FileError, match="parameter"):
            ask()
