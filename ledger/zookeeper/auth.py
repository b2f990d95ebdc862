"""Log-in at ZooKeeper, and the ACL of the nodes that we create.

Without a log-in every node is open to all who reach ZooKeeper: a firewall must protect it. With one, a node is its
creator's alone, except in a tree that is open already: an existing BookKeeper cluster without ACLs stays usable for
its other clients. The tree of this project's own services is the creator's in any case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ledger.errors import UsageError
from ledger.private_files import refuse_loose

AUTH_FILE_VARIABLE: Final = "RSM_ZK_AUTH_FILE"
_OWN_TREE: Final = "/rsm"
_SCHEMES: Final = ("digest", "auth", "sasl", "x509")


def login_of(auth_file: str | None = None) -> tuple[str, str] | None:
    """Read the log-in for ZooKeeper, (scheme, credential); None if there is none.

    Args:
        auth_file: Its only line is `scheme:credential`, such as `digest:user:secret`. None means the one that the
            environment names in `RSM_ZK_AUTH_FILE`, if it does.

    Raises:
        UsageError: The file cannot be read, or is of another form. Its contents are not told.

    """
    name = auth_file or os.environ.get(AUTH_FILE_VARIABLE)
    if not name:
        return None
    refuse_loose(name, "the ZooKeeper log-in")
    try:
        text = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ZooKeeper log-in from {name}: {error}") from error
    scheme, separator, credential = text.partition(":")
    if scheme not in _SCHEMES or not separator or not credential or "\n" in text:
        raise UsageError(f"{name}: expected one line like digest:user:secret")
    return scheme, credential


class AclRule:
    """Says which ACL a new node gets.

    Args:
        has_login: Whether the session has logged in.

    """

    def __init__(self, *, has_login: bool) -> None:
        self._has_login = has_login
        self._open_trees: dict[str, bool] = {}

    def tree_to_ask_for(self, path: str) -> str | None:
        """Return the node whose ACL must be known first (then call `learn`), or None."""
        tree = _tree_of(path)
        return tree if self._has_login and tree != _OWN_TREE and tree not in self._open_trees else None

    def learn(self, tree: str, acls: Sequence[Any] | None) -> None:
        """Take note of a tree's ACL; None if it does not exist yet."""
        self._open_trees[tree] = acls is not None and any(
            (acl.id.scheme, acl.id.id) == ("world", "anyone") and "ALL" in acl.acl_list for acl in acls
        )

    def acl_of(self, path: str) -> list[Any]:
        """Return the ACL for a new node, in kazoo's form."""
        is_open = not self._has_login or self._open_trees.get(_tree_of(path), False)
        return list(OPEN_ACL_UNSAFE if is_open else CREATOR_ALL_ACL)


def _tree_of(path: str) -> str:
    return "/" + path.split("/")[1]
