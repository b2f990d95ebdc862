"""Paths of BookKeeper's nodes in ZooKeeper, below a root that is usually `/ledgers`."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ledger.errors import UsageError

SHORT_LEDGER_ID_MAX: Final = (1 << 31) - 1
LEDGER_ID_MAX: Final = (1 << 63) - 1
_HIGH_ORDER_BITS_PREFIX: Final = "HOB-"
_SHORT_SPLIT: Final = (2, 4, 4)
_LONG_SPLIT: Final = (3, 4, 4, 4, 4)


class Layout(Enum):
    """Layout of ledgers' paths: the long form for ids that need it, or for all."""

    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "long hierarchical"


def ledger_path(root: str, ledger_id: int, layout: Layout = Layout.HIERARCHICAL) -> str:
    """Return the node of a ledger: 10 digits split 2/4/4, or 19 split 3/4/4/4/4 past the range of an int.

    Raises:
        UsageError: The id is negative or needs more than 63 bits.

    """
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {ledger_id} is not in 0 to {LEDGER_ID_MAX}")
    is_short = ledger_id <= SHORT_LEDGER_ID_MAX and layout is Layout.HIERARCHICAL
    return _path(root, ledger_id, _SHORT_SPLIT if is_short else _LONG_SPLIT)


def _path(root: str, ledger_id: int, split: tuple[int, ...]) -> str:
    digits = f"{ledger_id:0{sum(split)}d}"
    parts: list[str] = []
    for width in split:
        parts.append(digits[:width])
        digits = digits[width:]
    parts[-1] = "L" + parts[-1]
    return "/".join((root, *parts))


def ledger_id_of(path: str, root: str) -> int | None:
    """Return the ledger whose node a path below `root` is, in either form; None if it is no ledger's."""
    if not path.startswith(root + "/"):
        return None
    *parts, last = path[len(root) + 1 :].split("/")
    if not last.startswith("L"):
        return None
    digits = "".join((*parts, last[1:]))
    if not (digits.isascii() and digits.isdigit()):
        return None
    ledger_id = int(digits)
    if ledger_id <= SHORT_LEDGER_ID_MAX and path == _path(root, ledger_id, _SHORT_SPLIT):
        return ledger_id
    return ledger_id if ledger_id <= LEDGER_ID_MAX and path == _path(root, ledger_id, _LONG_SPLIT) else None


def is_ledger_branch(name: str, depth: int) -> bool:
    """Tell whether a child of a node `depth` levels below the root may lead to ledgers (0: child of the root).

    The two forms share the tree: below the root `NN` begins a short id, `NNN` a long one.
    """
    widths = (2, 3) if depth == 0 else (4,)
    return len(name) in widths and name.isascii() and name.isdigit()


def layout_path(root: str) -> str:
    """Return the node that names the layout."""
    return f"{root}/LAYOUT"


def instance_id_path(root: str) -> str:
    """Return the node of the cluster's uuid."""
    return f"{root}/INSTANCEID"


def available_path(root: str, bookie_id: str | None = None) -> str:
    """Return the folder of writable bookies, or the ephemeral node of one."""
    return f"{root}/available" if bookie_id is None else f"{root}/available/{bookie_id}"


def read_only_path(root: str, bookie_id: str | None = None) -> str:
    """Return the folder of read-only bookies, or the ephemeral node of one."""
    return f"{root}/available/readonly" if bookie_id is None else f"{root}/available/readonly/{bookie_id}"


def cookie_path(root: str, bookie_id: str | None = None) -> str:
    """Return the folder of cookies, or the cookie of one bookie."""
    return f"{root}/cookies" if bookie_id is None else f"{root}/cookies/{bookie_id}"


def former_bookie_path(root: str, bookie_id: str) -> str:
    """Return the node that tells that a bookie of this id has once had a cookie; ours, and kept for good.

    BookKeeper's tools look into every folder that they know, and into none below this one.
    """
    return f"{underreplication_path(root)}/formerbookies/{bookie_id}"


def id_generator_path(root: str) -> str:
    """Return the prefix of the ephemeral sequential nodes that give short ledger ids."""
    return f"{root}/idgen/ID-"


def long_id_generator_path(root: str, high_order_bits: int | None = None) -> str:
    """Return the folder of long-id generators, or the prefix of the nodes that give ids `high << 32 | low`."""
    folder = f"{root}/idgen-long"
    return folder if high_order_bits is None else f"{folder}/{_HIGH_ORDER_BITS_PREFIX}{high_order_bits:010d}/ID-"


def underreplication_path(root: str) -> str:
    """Return the folder of the auditor and the replication workers."""
    return f"{root}/underreplication"


def placement_path(root: str) -> str:
    """Return the node of the cluster's placement rule; ours: BookKeeper's tools do not look into it."""
    return f"{underreplication_path(root)}/placement"


def high_order_bits_of(name: str) -> int | None:
    """Return the number in the name of a long-id generator; None if it is none."""
    digits = name.removeprefix(_HIGH_ORDER_BITS_PREFIX)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None
