from __future__ import annotations

from connectors.source.decode import StoredEntry
from connectors.state.checkpoints import newest_checkpoint
from connectors.state.differences import Version, explain_digest, shown
from rsm_spark.core.digest import DIGEST_MODULUS
from rsm_spark.core.records import pack
from tests.unit.connectors.state.histories import Reference
from tests.unit.connectors.state.test_as_of import FakeLook

BEFORE = [Version("t", b"a", 3, 1000), Version("t", b"b", 4, 50)]
CHANGES = [
    Version("t", b"a", 11, 7),
    Version("t", b"c", 12, 90),
    Version("t", b"b", 13, 0),
    Version("t", b"a", 14, 8),
]
COMPUTED = (8 + 90, 2)  # a and c


def test_a_change_that_was_not_applied_explains_a_digest() -> None:
    for logged, guilty in (
        ((7 + 90, 2), CHANGES[3]),  # a as record 11 left it
        ((1000 + 90, 2), CHANGES[3]),  # a as it was before
        ((8, 1), CHANGES[1]),  # c was never inserted
        ((8 + 90 + 50, 3), CHANGES[2]),  # b is still there
        (((90 - 0) % DIGEST_MODULUS, 1), CHANGES[3]),  # a is gone
    ):
        assert explain_digest(logged, COMPUTED, BEFORE, CHANGES) == guilty


def test_a_digest_that_nothing_explains_stays_unexplained() -> None:
    assert explain_digest((12345, 2), COMPUTED, BEFORE, CHANGES) is None


def test_values_are_shown_as_people_read_them() -> None:
    assert shown(None) is None
    assert shown(pack((b"key", 7, "text", b"\x00\xff", None))) == '["key",7,"text","0x00ff",null]'
    assert shown(b"\xc1") == "c1"


class FakeAccess:
    def __init__(self, look: FakeLook) -> None:
        self._look = look

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        return [
            StoredEntry(entry_id, 0, self._look.payloads[ledger_id, entry_id])
            for entry_id in range(first_entry_id, last_entry_id + 1)
        ]


def test_the_newest_checkpoint_is_found_from_the_end() -> None:
    reference = Reference(5)
    reference.grow(60)
    look = FakeLook(reference)
    known = reference.checkpoints
    assert newest_checkpoint(look.look(), FakeAccess(look)) == known[-1]
    assert newest_checkpoint(look.look(), FakeAccess(look), known[2]) == known[2]
    assert newest_checkpoint(look.look(), FakeAccess(look), known[2] - 1) == known[1]
    young = Reference(5)
    young.grow(3)
    assert newest_checkpoint(FakeLook(young).look(), FakeAccess(FakeLook(young))) is None
