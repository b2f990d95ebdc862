from __future__ import annotations

import pytest

from connectors.errors import OptionError
from connectors.state.as_of import AsOfKind
from connectors.state.options import parse_state_options


def test_options_are_parsed_whatever_their_case() -> None:
    given = {
        "log": "orders",
        "LAKE": "/lake",
        "asofrevision": "7",
        "maxTailBytes": "10m",
        "table": "map",
        "storageOption.aws_region": "x",
    }
    options = parse_state_options(given)
    assert (options.source.log, options.source.lake, options.table) == ("orders", "/lake", "map")
    assert (options.as_of.kind, options.as_of.revision) == (AsOfKind.REVISION, 7)
    assert options.tail_bytes_max == 10 * 1024 * 1024
    assert options.source.storage_options == {"aws_region": "x"}
    assert "aws" not in repr(options)
    assert parse_state_options({"log": "orders"}).as_of.kind == AsOfKind.NEWEST


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option log is missing"),
        ({"log": "orders", "asOfRevison": "1"}, "unknown option asOfRevison: did you mean asOfRevision?"),
        ({"log": "orders", "asOfRevision": "1", "asOfPosition": "1:2"}, "give one of them"),
        ({"log": "orders", "password": "secret"}, "option password is refused"),
        ({"log": "orders", "maxTailBytes": "many"}, "maxTailBytes"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        parse_state_options(given)
    assert "secret" not in str(caught.value)
