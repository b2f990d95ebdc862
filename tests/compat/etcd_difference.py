"""The same random calls to two endpoints of etcd's API, and their answers compared call by call.

Revisions differ: etcd counts changing transactions, the map records. So each changing transaction has a place in the
order, the same at both, and answers are compared with places in place of revisions.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import Any

from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure

KEYS = [b"a", b"a1", b"a2", b"ab", b"b", b"b1", b"c", b"\xff", b"\xffz"]
ENDS = [b"", b"", b"", b"a2", b"b", b"b\0", b"c", b"\xff", b"\0", b"a"]
LEASES = [101, 102, 103]


class Side:
    """One endpoint, with its revisions in the order of changing transactions."""

    def __init__(self, calls: EtcdCalls, first: int) -> None:
        self.calls = calls
        self.revisions = [first]

    def place(self, revision: int) -> int:
        """Return the place of the transaction that made this the revision."""
        return bisect_right(self.revisions, revision) - 1

    def exact(self, revision: int) -> int:
        place = self.place(revision)
        assert place >= 0, f"{revision} is before the first of {self.revisions}"
        assert self.revisions[place] == revision, f"{revision} is of no transaction: {self.revisions[-5:]}"
        return place


class Difference:
    """Two endpoints that should answer alike; `run` raises where they do not.

    Args:
        real: What is right.
        ours: What is tried.
        rng: Chooses.

    Attributes:
        calls: Made so far, by method.

    """

    def __init__(self, real: EtcdCalls, ours: EtcdCalls, rng: random.Random) -> None:
        self.rng = rng
        self.sides = [Side(one, one.get(b"x").header.revision) for one in (real, ours)]
        self.calls: dict[str, int] = {}
        self.compacted = 0

    # ---- requests, with places for revisions: translated for each side

    def run(self, steps: int) -> None:
        kinds = [self.put] * 5 + [self.delete] * 2 + [self.range] * 5 + [self.txn] * 6 + [self.lease] * 2
        for step in range(steps):
            if step % 97 == 96:
                self.compact()
            else:
                self.rng.choice(kinds)()
            if step % 25 == 24:
                self.both("Range", lambda _: pb.RangeRequest(key=b"\0", range_end=b"\0"))

    @property
    def last(self) -> int:
        return len(self.sides[0].revisions) - 1

    def put(self) -> None:
        request = self._put()
        self.both("Put", lambda _: request)

    def _put(self) -> pb.PutRequest:
        rng = self.rng
        request = pb.PutRequest(key=rng.choice(KEYS), value=b"%d" % rng.randrange(4), prev_kv=rng.random() < 0.5)
        if rng.random() < 0.2:
            request.lease = rng.choice([*LEASES, 999])
        if rng.random() < 0.1:
            request.ignore_value = True
            request.value = b"" if rng.random() < 0.8 else b"x"
        if rng.random() < 0.1:
            request.ignore_lease = True
            request.lease = 0 if rng.random() < 0.8 else 7
        if rng.random() < 0.02:
            request.key = b""
        return request

    def delete(self) -> None:
        request = self._delete()
        self.both("DeleteRange", lambda _: request)

    def _delete(self) -> pb.DeleteRangeRequest:
        rng = self.rng
        return pb.DeleteRangeRequest(key=rng.choice(KEYS), range_end=rng.choice(ENDS), prev_kv=rng.random() < 0.5)

    def range(self) -> None:
        request, places = self._range()
        self.both("Range", lambda side: self._placed(request, places, side))

    def _range(self) -> tuple[pb.RangeRequest, dict[str, int]]:
        rng = self.rng
        request = pb.RangeRequest(key=rng.choice(KEYS), range_end=rng.choice(ENDS), serializable=False)
        request.limit = rng.choice([0, 0, 0, 1, 2, 3])
        request.keys_only = rng.random() < 0.2
        request.count_only = rng.random() < 0.15
        places: dict[str, int] = {}
        if rng.random() < 0.3:
            order = rng.choice(pb.RangeRequest.SortOrder.keys())
            target = rng.choice(pb.RangeRequest.SortTarget.keys())
            request.MergeFrom(pb.RangeRequest(sort_order=order, sort_target=target))
        if rng.random() < 0.4:
            places["revision"] = rng.randint(max(0, self.compacted - 2), self.last)
            if rng.random() < 0.3:
                places["before"] = 1
        for name in ("min_mod_revision", "max_mod_revision", "min_create_revision", "max_create_revision"):
            if rng.random() < 0.08:
                places[name] = rng.randint(0, self.last)
        return request, places

    @staticmethod
    def _placed(request: pb.RangeRequest, places: dict[str, int], side: Side) -> pb.RangeRequest:
        placed = pb.RangeRequest()
        placed.CopyFrom(request)
        for name, place in places.items():
            if name != "before":
                setattr(placed, name, side.revisions[place])
        # The revision right before a transaction shows nothing of it.
        placed.revision -= places.get("before", 0)
        return placed

    def txn(self) -> None:
        make = self._txn(2)
        self.both("Txn", make)

    def _txn(self, depth: int) -> Any:
        rng = self.rng
        compares = [self._compare() for _ in range(rng.choice([0, 1, 1, 2]))]
        sides = [[self._operation(depth) for _ in range(rng.choice([0, 1, 2, 3]))] for _ in range(2)]

        def make(side: Side) -> pb.TxnRequest:
            return pb.TxnRequest(
                compare=[compare(side) for compare in compares],
                success=[operation(side) for operation in sides[0]],
                failure=[operation(side) for operation in sides[1]],
            )

        return make

    def _compare(self) -> Any:
        rng = self.rng
        name = rng.choice(pb.Compare.CompareTarget.keys())
        result = rng.choice(pb.Compare.CompareResult.keys())
        compare = pb.Compare(result=result, target=name, key=rng.choice(KEYS))
        target = compare.target
        if rng.random() < 0.3:
            compare.range_end = rng.choice(ENDS)
        place = rng.randint(0, self.last)
        if target == pb.Compare.VERSION:
            compare.version = rng.randrange(4)
        elif target == pb.Compare.VALUE:
            compare.value = b"%d" % rng.randrange(4)
        elif target == pb.Compare.LEASE:
            compare.lease = rng.choice([0, *LEASES])
        is_zero = rng.random() < 0.3

        def make(side: Side) -> pb.Compare:
            revision = 0 if is_zero else side.revisions[place]
            if target == pb.Compare.CREATE:
                compare.create_revision = revision
            elif target == pb.Compare.MOD:
                compare.mod_revision = revision
            return compare

        return make

    def _operation(self, depth: int) -> Any:
        roll = self.rng.random()
        if roll < 0.4:
            put = self._put()
            return lambda _: pb.RequestOp(request_put=put)
        if roll < 0.55:
            delete = self._delete()
            if delete.range_end == b"\0":
                delete.range_end = b""  # etcd 3.7.3 dies where the key that it keeps the value of went before.
            return lambda _: pb.RequestOp(request_delete_range=delete)
        if roll < 0.8 or not depth:
            request, places = self._range()
            places = {name: place for name, place in places.items() if name not in {"revision", "before"}}
            return lambda side: pb.RequestOp(request_range=self._placed(request, places, side))
        inner = self._txn(depth - 1)
        return lambda side: pb.RequestOp(request_txn=inner(side))

    def lease(self) -> None:
        lease, roll = self.rng.choice(LEASES), self.rng.random()
        if roll < 0.5:
            self.both("LeaseGrant", lambda _: pb.LeaseGrantRequest(id=lease, ttl=1000 + lease))
        elif roll < 0.7:
            self.both("LeaseRevoke", lambda _: pb.LeaseRevokeRequest(id=lease))
        elif roll < 0.9:
            self.both("LeaseTimeToLive", lambda _: pb.LeaseTimeToLiveRequest(id=lease, keys=True))
        else:
            self.both("LeaseLeases", lambda _: pb.LeaseLeasesRequest())

    def compact(self) -> None:
        place = self.rng.randint(max(0, self.compacted - 1), self.last)
        answer = self.both("Compact", lambda side: pb.CompactionRequest(revision=side.revisions[place]))
        if not isinstance(answer, EtcdFailure):
            self.compacted = place

    # ---- answers

    def both(self, method: str, make: Any) -> Any:
        """Call both; compare; take note of a new revision."""
        self.calls[method] = self.calls.get(method, 0) + 1
        requests = [_copy(make(side)) for side in self.sides]
        answers = [side.calls.call(method, request) for side, request in zip(self.sides, requests, strict=True)]
        real, ours = self.sides
        if not isinstance(answers[0], EtcdFailure) and method != "Compact":
            assert not isinstance(answers[1], EtcdFailure), f"{requests[1]}\nreal {answers[0]}\nours {answers[1]}"
            if answers[0].header.revision > real.revisions[-1]:
                assert answers[1].header.revision > ours.revisions[-1], f"{requests[1]}\n{answers[1]}"
                real.revisions.append(answers[0].header.revision)
                ours.revisions.append(answers[1].header.revision)
        shown = [self.shown(method, side, answer) for side, answer in zip(self.sides, answers, strict=True)]
        assert shown[0] == shown[1], f"{method}\n{requests[1]}\nreal {shown[0]}\nours {shown[1]}"
        return answers[0]

    def shown(self, method: str, side: Side, answer: Any) -> Any:
        """Return an answer with places for revisions."""
        if isinstance(answer, EtcdFailure):
            return answer
        if method == "Compact":
            return "compacted"
        return _shown(side, answer)


def _copy(request: Any) -> Any:
    copied = type(request)()
    copied.CopyFrom(request)
    return copied


def shown_key(side: Side, kv: Any) -> Any:
    """Return a key with places for its revisions; etcd 3.7 leaves out leases where only keys are asked for."""
    if not kv.value:
        return (kv.key, side.exact(kv.create_revision), side.exact(kv.mod_revision), kv.version)
    return (kv.key, kv.value, side.exact(kv.create_revision), side.exact(kv.mod_revision), kv.version, kv.lease)


def _shown(side: Side, answer: Any) -> Any:
    place = side.place(answer.header.revision)
    match answer:
        case pb.RangeResponse():
            kvs = [shown_key(side, kv) for kv in answer.kvs]
            return ("range", place, kvs, answer.more, answer.count)
        case pb.PutResponse():
            return ("put", place, shown_key(side, answer.prev_kv) if answer.HasField("prev_kv") else None)
        case pb.DeleteRangeResponse():
            return ("delete", place, answer.deleted, [shown_key(side, kv) for kv in answer.prev_kvs])
        case pb.TxnResponse():
            inner = [_shown(side, getattr(one, one.WhichOneof("response"))) for one in answer.responses]
            return ("txn", answer.succeeded, inner)
        case pb.LeaseGrantResponse():
            return ("grant", answer.id, answer.ttl)
        case pb.LeaseTimeToLiveResponse():
            # The time passes while both are asked.
            return ("ttl", answer.id, answer.ttl > 0, answer.granted_ttl, sorted(answer.keys))
        case pb.LeaseLeasesResponse():
            return ("leases", sorted(lease.id for lease in answer.leases))
    return type(answer).__name__


def shown_events(side: Side, events: list[Any]) -> list[Any]:
    """Return events with places for revisions; those of one transaction in the order of their keys."""
    shown = []
    for event in events:
        kv = event.kv
        if event.type == pb.Event.DELETE:
            now: Any = (side.exact(kv.mod_revision), kv.key, None)
        else:
            now = (side.exact(kv.mod_revision), kv.key, shown_key(side, kv))
        shown.append((*now, shown_key(side, event.prev_kv) if event.HasField("prev_kv") else None))
    return sorted(shown, key=lambda one: one[:2])
