from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ledger.errors import UsageError
from ledger.zookeeper.auth import AUTH_FILE_VARIABLE, AclRule, login_of


def test_a_log_in_is_read_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AUTH_FILE_VARIABLE, raising=False)
    assert login_of() is None
    file = tmp_path / "zk"
    file.write_text("digest:me:secret:with:colons\n")
    monkeypatch.setenv(AUTH_FILE_VARIABLE, str(file))
    assert login_of() == ("digest", "me:secret:with:colons")


@pytest.mark.parametrize("text", ["", "secret", "digest:", "rot13:me:secret", "digest:a:secret\ndigest:b:secret"])
def test_a_file_that_holds_no_log_in_is_named_and_its_contents_are_not(tmp_path: Path, text: str) -> None:
    file = tmp_path / "zk"
    file.write_text(text)
    with pytest.raises(UsageError, match=str(file)) as raised:
        login_of(str(file))
    assert "me:secret" not in str(raised.value)
    with pytest.raises(UsageError, match="missing"):
        login_of(str(tmp_path / "missing"))


def test_nodes_are_open_to_all_without_a_log_in() -> None:
    rule = AclRule(has_login=False)
    assert rule.tree_to_ask_for("/ledgers/x") is None
    assert rule.acl_of("/ledgers/x") == rule.acl_of("/rsm/x") == OPEN_ACL_UNSAFE


def test_with_a_log_in_an_open_tree_stays_open_and_everything_else_is_the_creators() -> None:
    rule = AclRule(has_login=True)
    assert rule.tree_to_ask_for("/rsm/logs/x") is None
    assert rule.acl_of("/rsm/logs/x") == CREATOR_ALL_ACL
    for tree, acls, expected in (
        ("/open", OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE),
        ("/closed", CREATOR_ALL_ACL, CREATOR_ALL_ACL),
        ("/new", None, CREATOR_ALL_ACL),
    ):
        assert rule.tree_to_ask_for(f"{tree}/a/b") == tree
        rule.learn(tree, acls)
        assert rule.tree_to_ask_for(f"{tree}/a/c") is None
        assert rule.acl_of(f"{tree}/a/b") == expected
