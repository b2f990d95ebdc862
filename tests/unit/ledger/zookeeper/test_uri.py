from __future__ import annotations

import pytest

from ledger.errors import UsageError
from ledger.zookeeper.uri import DEFAULT_METADATA_URI, METADATA_URI_VARIABLE, MetadataUri


@pytest.mark.parametrize(
    ("text", "hosts", "root"),
    [
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", ("h1:2181", "h2:2182"), "/ledgers"),
        ("zk://h1:2181,h2/a/b/", ("h1:2181", "h2:2181"), "/a/b"),
        ("zk+null://h1", ("h1:2181",), "/ledgers"),
        ("zk+longhierarchical://h1/l", ("h1:2181",), "/l"),
    ],
)
def test_hosts_and_root_are_read(text, hosts, root) -> None:
    uri = MetadataUri.parse(text)
    assert (uri.hosts, uri.ledgers_root) == (hosts, root)
    assert MetadataUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    "text", ["", "h:1", "http://h:1/l", "zk://", "zk://h:0/l", "zk://h:x/l", "zk://h:99999/l", "zk://h/a//b"]
)
def test_what_is_no_uri_is_refused_with_its_text(text) -> None:
    with pytest.raises(UsageError, match="metadata URI"):
        MetadataUri.parse(text)


def test_the_environment_comes_before_the_default(monkeypatch) -> None:
    monkeypatch.delenv(METADATA_URI_VARIABLE, raising=False)
    assert MetadataUri.of(None) == MetadataUri.parse(DEFAULT_METADATA_URI)
    monkeypatch.setenv(METADATA_URI_VARIABLE, "zk://elsewhere:1/x")
    assert MetadataUri.of(None).hosts == ("elsewhere:1",)
    assert MetadataUri.of("zk://named:1/x").hosts == ("named:1",)
