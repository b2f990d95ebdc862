"""A log is renamed in one step, cut off at any write and finished by the next try; nobody finds it twice, or not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ledger.errors import MetadataDeniedError, MetadataUnavailableError
from ledger.ports import Versioned
from rsm_spark.core.chain import decode_chain
from rsm_spark.errors import ChainConflictError, LogError, NoSuchLogError, RenamedLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.deletion import delete_log
from rsm_spark.log.former_names import present_name
from rsm_spark.log.member import Member, encode_member
from rsm_spark.log.renaming import RenamedLog, forget_former_name, rename_log
from rsm_spark.log.sharing import LedgerUse
from tests.unit.rsm_spark.log.test_deletion import Ledgers, Nodes, chain

_ID, _OTHER, _OWNER = "ab" * 16, "cd" * 16, "ee" * 16
_NOTE = f"/rsm/sharing/{_OWNER}/{_ID}"
_FORGOTTEN = "/rsm/services/{}/forgotten"


def world(fails_at: int = -1, *, is_reply_lost: bool = False) -> Nodes:
    store = Nodes()
    store.nodes["/rsm/logs/orders"] = Versioned(chain(_ID, 3, 5), 7)
    store.nodes[_FORGOTTEN.format("orders")] = Versioned(b"nobody", 2)
    store.nodes["/rsm/services/orders/members"] = Versioned(b"", 0)
    store.nodes[f"/rsm/sharing/{_OWNER}"] = Versioned(b"", 0)
    store.nodes[_NOTE] = Versioned(msgspec.json.encode(LedgerUse("orders", _ID, (3,))), 0)
    store.writes_left, store.is_reply_lost = fails_at, is_reply_lost
    return store


def rename(store: Nodes, log: str = "orders", new: str = "bills") -> RenamedLog:
    return asyncio.run(rename_log(store, log, new, by="ann", at_ms=1_000))  # type: ignore[arg-type]


def names_of(store: Nodes) -> list[str]:
    """Return the names under which the log stands."""
    found = {path.rpartition("/")[2]: one for path, one in store.nodes.items() if path.startswith("/rsm/logs/")}
    return [name for name, one in found.items() if decode_chain(one.value, log_name=name).log_id == _ID]


def test_all_that_is_said_of_a_log_by_its_name_goes_with_it() -> None:
    store = world()
    before = store.nodes["/rsm/logs/orders"].value
    done = rename(store)
    assert done == RenamedLog("orders", "bills", _ID, was_done=False)
    assert store.nodes["/rsm/logs/bills"].value == before
    assert names_of(store) == ["bills"]
    assert msgspec.json.decode(store.nodes[_NOTE].value, type=LedgerUse) == LedgerUse("bills", _ID, (3,))
    assert store.nodes[_FORGOTTEN.format("bills")].value == b"nobody"
    assert not [path for path in store.nodes if path.startswith("/rsm/services/orders")]


@pytest.mark.parametrize("is_reply_lost", [False, True])
def test_a_renaming_cut_off_at_any_write_is_finished_by_the_next(is_reply_lost: bool) -> None:
    cuts = was_done = 0
    while True:
        store = world(cuts, is_reply_lost=is_reply_lost)
        try:
            was_done += rename(store).was_done
        except MetadataUnavailableError:
            assert len(names_of(store)) == 1, f"cut at write {cuts}"
            store.writes_left = -1
            was_done += rename(store).was_done
        finished = store.writes_left >= 0
        whole = world()
        rename(whole)
        assert store.nodes == whole.nodes, f"cut at write {cuts}"
        if finished:
            break
        cuts += 1
    assert cuts > 6
    assert was_done


def test_who_knows_the_former_name_hears_the_present_one() -> None:
    store: Any = world()
    rename(store)
    rename(store, "bills", "dues")
    for name in ("orders", "bills"):
        for call in (ChainStore(store, name).read(), ChainStore(store, name).ensure(_OTHER)):
            with pytest.raises(RenamedLogError, match=r"ann renamed it to .*use the name dues") as told:
                asyncio.run(call)
            assert told.value.new_name == "dues"
    assert asyncio.run(present_name(store, "orders", _ID, "/rsm")) == "dues"
    assert asyncio.run(present_name(store, "orders", _OTHER, "/rsm")) is None
    with pytest.raises(RenamedLogError, match="use the name dues"):
        asyncio.run(delete_log(Ledgers(store, {3, 5}), "orders"))  # type: ignore[arg-type]
    rename(store, "dues", "orders")  # And back.
    assert names_of(store) == ["orders"]
    assert asyncio.run(ChainStore(store, "orders").read())[0].log_id == _ID
    with pytest.raises(RenamedLogError, match="use the name orders"):
        asyncio.run(ChainStore(store, "bills").read())


def test_a_former_name_is_free_once_that_is_said() -> None:
    store: Any = world()
    rename(store)
    assert asyncio.run(forget_former_name(store, "orders")).new_name == "bills"
    assert asyncio.run(ChainStore(store, "orders").ensure(_OTHER)).log_id == _OTHER
    with pytest.raises(LogError, match="no log had this name before"):
        asyncio.run(forget_former_name(store, "orders"))


def test_a_log_that_is_made_under_a_former_name_is_another_one() -> None:
    store: Any = world()
    rename(store)
    asyncio.run(ChainStore(store, "orders").create(decode_chain(chain(_OTHER, 8), log_name="orders")))
    assert asyncio.run(ChainStore(store, "orders").read())[0].log_id == _OTHER
    client: Any = Ledgers(store, {3, 5, 8})
    (deleted,) = asyncio.run(delete_log(client, "orders"))
    assert (deleted.log_id, deleted.ledger_ids) == (_OTHER, [8])
    assert client.ledger_ids == {3, 5}
    with pytest.raises(NoSuchLogError) as told:
        asyncio.run(ChainStore(store, "orders").read())
    assert not isinstance(told.value, RenamedLogError), "the last log of that name was deleted"


@pytest.mark.parametrize(("path", "value", "reason"), [
    ("/rsm/logs/bills", chain(_OTHER), "log bills: there is one already"),
    ("/rsm/services/orders/members/a", encode_member(Member(replica_id="a", incarnation="1" * 32, address="h:1")),
     "its replica a still runs: stop every replica first"),
    (f"/rsm/deleting/{_ID}", b"{}", "a deletion of it was cut off: finish that with rsm log delete orders"),
    (f"/rsm/making/{_ID}", b"{}", "the restore that made it"),
])  # fmt: skip
def test_what_is_in_the_way_is_said(path: str, value: bytes, reason: str) -> None:
    store = world()
    store.nodes[path] = Versioned(value, 0)
    before = dict(store.nodes)
    with pytest.raises(LogError, match=reason):
        rename(store)
    assert store.nodes == before


@pytest.mark.parametrize("new", ["", "a/b", "..", "orders"])
def test_a_name_that_is_none_is_refused(new: str) -> None:
    with pytest.raises(LogError, match="no other name for a log"):
        rename(world(), new=new)


def test_a_note_that_cannot_be_read_keeps_the_name() -> None:
    store = world()
    store.denied = {_NOTE}
    with pytest.raises(MetadataDeniedError):
        rename(store)
    assert names_of(store) == ["orders"]


@pytest.mark.parametrize("path", ["/rsm/logs/bills", f"/rsm/deleting/{_ID}", f"/rsm/making/{_ID}"])
def test_what_comes_into_the_way_at_the_last_moment_is_seen(path: str) -> None:
    store = world()

    def come(written: str) -> None:
        if written == "/rsm/logs/orders":
            store.nodes.setdefault(path, Versioned(chain(_OTHER), 0))

    store.on_write = come
    with pytest.raises(LogError):
        rename(store)
    assert names_of(store) == ["orders"]


def test_a_log_that_changes_again_and_again_keeps_its_name() -> None:
    store = world()

    def claim(written: str) -> None:
        known = store.nodes.get("/rsm/logs/orders")
        if written == "/rsm/logs/orders" and known is not None:
            store.nodes[written] = Versioned(known.value, known.version + 1)

    store.on_write = claim
    with pytest.raises(ChainConflictError, match="it was not renamed"):
        rename(store)
    assert names_of(store) == ["orders"]
