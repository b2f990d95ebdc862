"""Whatever clients do and however time passes, the map equals a plain dict that does the same."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import DELETED, EXPIRED, PUT
from tests.sets import examples
from tests.unit.rsm_spark.map.driven_map import DrivenMap

KEYS = st.sampled_from([b"a", b"a1", b"a2", b"b", b"b1", b"c"])
VALUES = st.binary(max_size=2) | st.integers(-5, 5).map(lambda n: b"%d" % n)
BOUNDS = st.sampled_from([b"", b"a", b"a2", b"b", b"z"])
TTLS = st.integers(1, 50)


class Model:
    """Keys with value, mod revision, and what ends them; leases. Decides by brute force."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.ends: dict[bytes, tuple[int, int]] = {}  # (lease, ttl) or, with lease 0, (0, deadline)
        self.leases: dict[int, tuple[int, int]] = {}  # ttl, deadline

    def copy(self) -> Model:
        other = Model()
        other.rows, other.ends, other.leases = dict(self.rows), dict(self.ends), dict(self.leases)
        return other

    def drop(self, key: bytes) -> None:
        self.rows.pop(key, None)
        self.ends.pop(key, None)

    def expire(self, now_ms: int) -> None:
        for lease in [number for number, (_, deadline) in self.leases.items() if deadline <= now_ms]:
            self.end(lease)
        for key in [key for key, (lease, deadline) in self.ends.items() if not lease and deadline <= now_ms]:
            self.drop(key)

    def end(self, lease: int) -> int:
        del self.leases[lease]
        keys = [key for key, (number, _) in self.ends.items() if number == lease]
        for key in keys:
            self.drop(key)
        return len(keys)

    def begin_anew(self, now_ms: int, ttls: dict[bytes, int]) -> None:
        """A new leader: full time for all."""
        self.leases = {number: (ttl, now_ms + ttl) for number, (ttl, _) in self.leases.items()}
        self.ends = {key: (lease, at if lease else now_ms + ttls[key]) for key, (lease, at) in self.ends.items()}


class MapAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driven = DrivenMap()
        self.model = Model()
        self.ttls: dict[bytes, int] = {}
        self.scans: dict[int, tuple[list[tuple[bytes, bytes, int]], bytes]] = {}

    # ---- one operation on the model: what it answers, without revisions

    def done(self, model: Model, operation: Any, revision: int) -> tuple[Any, int]:
        """Do it on the model; return the kind of answer and how many map records came before the next operation."""
        match operation:
            case m.Put(key, value):
                model.rows[key] = (value, revision)
                model.ends.pop(key, None)
                return m.Written, 0
            case m.Delete(key):
                there = key in model.rows
                model.drop(key)
                return (m.Written if there else m.NotFound), 0
            case m.DeleteRange(start, end):
                keys = [key for key in model.rows if key >= start and (end is None or key < end)]
                for key in keys:
                    model.drop(key)
                return (m.Removed, len(keys)), 0
            case m.Read(key):
                found = model.rows.get(key)
                return (m.NotFound if found is None else (m.Seen, found[0])), 0
            case m.Increment(key, amount):
                found = model.rows.get(key)
                try:
                    number = 0 if found is None else int(found[0])
                    if found is not None and b"%d" % number != found[0]:
                        raise ValueError
                except ValueError:
                    return None, 0
                model.rows[key] = (b"%d" % (number + amount), revision)
                return (m.Incremented, number + amount), 0
            case m.PutExpiring(key, value, ttl_ms, lease):
                if lease and lease not in model.leases:
                    return None, 0
                model.rows[key] = (value, revision)
                model.ends[key] = (lease, 0) if lease else (0, self.driven.now_ms + ttl_ms)
                self.ttls[key] = ttl_ms
                return m.Written, 0
        raise AssertionError(operation)

    @staticmethod
    def same_answer(expected: Any, got: Any) -> bool:
        if isinstance(expected, tuple):
            kind, what = expected
            shown = got.count if kind is m.Removed else got.value
            return isinstance(got, kind) and shown == what
        return isinstance(got, expected)

    def learn_revisions(self) -> None:
        """Take over the revisions that the log gave; values were compared before."""
        for key, (value, _) in list(self.model.rows.items()):
            found = self.driven.ask(m.Get(key))
            assert isinstance(found, m.Found)
            assert found.value == value
            written = [at for at, (kind, fields) in enumerate(self.driven.log) if kind == PUT and fields[0] == key]
            assert self.driven.log[written[-1]][1][1] == value
            assert found.revision == self.driven.ends[written[-1]], "the mod revision is that of the whole command"
            self.model.rows[key] = (value, found.revision)

    OPERATIONS = (
        st.builds(m.Put, KEYS, VALUES)
        | st.builds(m.Delete, KEYS)
        | st.builds(m.DeleteRange, BOUNDS, st.none() | BOUNDS)
        | st.builds(m.Read, KEYS)
        | st.builds(m.Increment, KEYS, st.integers(-3, 3))
        | st.builds(m.PutExpiring, KEYS, VALUES, TTLS)
    )

    @rule(operation=OPERATIONS.filter(lambda one: not isinstance(one, m.Read)))
    def do_one(self, operation: Any) -> None:
        reply = self.driven.run(operation)
        expected, _ = self.done(self.model, operation, 0)
        if expected is None:
            assert isinstance(reply, m.MapRefused)
        else:
            assert self.same_answer(expected, reply), (operation, reply, expected)
        self.learn_revisions()

    @rule(data=st.data(), then=st.lists(OPERATIONS, max_size=5), orelse=st.lists(OPERATIONS, max_size=3))
    def transact(self, data: st.DataObject, then: list[Any], orelse: list[Any]) -> None:
        compares, truths = [], []
        for _ in range(data.draw(st.integers(0, 2))):
            key = data.draw(KEYS)
            found = self.model.rows.get(key)
            relation: Any = data.draw(st.sampled_from(["=", "!=", "<", ">"]))
            ask = {
                "=": lambda a, b: a == b,
                "!=": lambda a, b: a != b,
                "<": lambda a, b: a < b,
                ">": lambda a, b: a > b,
            }
            kind: Any = data.draw(st.sampled_from(["value", "revision"]))
            if kind == "value":
                operand: Any = data.draw(VALUES | st.just(found[0] if found else b""))
                truths.append(found is not None and ask[relation](found[0], operand))
            else:
                operand = data.draw(st.just(found[1] if found else 0) | st.integers(0, 20))
                truths.append(ask[relation](found[1] if found else 0, operand))
            compares.append(m.Compare(key, kind, relation, operand))
        reply = self.driven.run(m.MapTransaction(compares, then, orelse))
        trial = self.model.copy()
        chosen = then if all(truths) else orelse
        expected = [self.done(trial, operation, 0)[0] for operation in chosen]
        if None in expected:
            assert isinstance(reply, m.MapRefused)
            return
        assert isinstance(reply, m.Executed)
        assert reply.succeeded is all(truths)
        assert all(map(self.same_answer, expected, reply.results)), (expected, reply.results)
        self.model = trial
        self.learn_revisions()

    # ---- leases and time

    @rule(ttl_ms=TTLS)
    def grant(self, ttl_ms: int) -> None:
        reply = self.driven.run(m.GrantLease(ttl_ms))
        assert isinstance(reply, m.Granted)
        assert reply.lease not in self.model.leases
        self.model.leases[reply.lease] = (ttl_ms, self.driven.now_ms + ttl_ms)

    @rule(data=st.data(), key=KEYS, value=VALUES)
    def attach(self, data: st.DataObject, key: bytes, value: bytes) -> None:
        lease = data.draw(st.sampled_from([*sorted(self.model.leases), 10_000]))
        self.do_one(m.PutExpiring(key, value, 0, lease))

    @rule(data=st.data())
    def keep_or_revoke(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([*sorted(self.model.leases), 10_000]))
        command = data.draw(st.sampled_from([m.KeepLease, m.RevokeLease]))
        reply = self.driven.run(command(lease))
        if lease not in self.model.leases:
            assert reply == m.NotFound()
        elif command is m.KeepLease:
            ttl_ms = self.model.leases[lease][0]
            assert reply == m.Kept(ttl_ms)
            self.model.leases[lease] = (ttl_ms, self.driven.now_ms + ttl_ms)
        else:
            assert isinstance(reply, m.Removed)
            assert reply.count == self.model.end(lease)

    @rule(ms=st.integers(0, 40), limit=st.sampled_from([3, 5, 1_000]))
    def pass_time(self, ms: int, limit: int) -> None:
        self.driven.pass_time(ms, limit=limit)
        self.model.expire(self.driven.now_ms)

    @rule()
    def fail_over(self) -> None:
        self.driven.fail_over()
        self.model.begin_anew(self.driven.now_ms, self.ttls)
        self.scans.clear()

    # ---- scans that take their time

    @rule()
    def begin_scan(self) -> None:
        rows = [(key, *self.model.rows[key]) for key in sorted(self.model.rows)]
        if len(rows) > 1 and self.driven.revision not in self.scans:
            self.driven.machine._rows.pin(self.driven.revision)
            self.scans[self.driven.revision] = (rows, rows[0][0])

    @rule(data=st.data())
    def go_on_scanning(self, data: st.DataObject) -> None:
        if self.scans:
            at = data.draw(st.sampled_from(sorted(self.scans)))
            rows, start = self.scans.pop(at)
            page = self.driven.ask(m.Scan(start, None, 10_000, at, True))
            assert isinstance(page, m.Page)
            assert [tuple(row)[:3] for row in page.entries] == rows
            assert self.driven.ask(m.Scan(start, None, 10_000, at, True)) == m.Forgotten()

    # ---- always

    def counted(self) -> dict[bytes, tuple[int, int]]:
        """Return create revision and version of each key, counted over the whole log."""
        counts: dict[bytes, tuple[int, int]] = {}
        for revision, (record_type, fields) in zip(self.driven.ends, self.driven.log, strict=True):
            if record_type == PUT:
                created, version = counts.get(fields[0], (revision, 0))
                counts[fields[0]] = (created, version + 1)
            elif record_type in (DELETED, EXPIRED):
                counts.pop(fields[0], None)
        return counts

    @invariant()
    def same_state(self) -> None:
        page = self.driven.ask(m.Scan(b"", None, 100, counts=True))
        assert isinstance(page, m.Page)
        counts = self.counted()
        assert [tuple(row) for row in page.entries] == [
            (key, *self.model.rows[key], *counts[key]) for key in sorted(self.model.rows)
        ]
        leases = self.driven.ask(m.ListLeases(0, 1_000))
        assert isinstance(leases, m.Leases)
        assert {one.lease: one.ttl_ms for one in leases.leases} == {n: ttl for n, (ttl, _) in self.model.leases.items()}
        assert self.driven.digest.value == self.driven.digest_of_rows()

    def teardown(self) -> None:
        self.driven.machine.validate()
        restored = MapMachine()
        restored.restore(self.driven.machine.rows())
        for other in (restored, self.driven.replayed()):
            other.validate()
            assert sorted(other.rows()) == sorted(self.driven.machine.rows())


TestMapAgainstModel = MapAgainstModel.TestCase
TestMapAgainstModel.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
