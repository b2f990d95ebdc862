"""The checker of histories: what it must accept, what it must refuse, and that it agrees with a much simpler one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from rsm_spark.testing.history import CallerCall, CallerReply, Kind, decode_history, encode_history
from rsm_spark.testing.linearizability import CheckOutcome, check_history, check_revision_order

DONE = CallerReply()


def put(value, began, ended, revision=None, client="w", key="k"):
    return CallerCall(client, key, Kind.PUT, began, ended, argument=value, reply=CallerReply(revision=revision))


def get(value, began, ended, revision=None, client="r", key="k"):
    return CallerCall(client, key, Kind.GET, began, ended, reply=CallerReply(value=value, revision=revision))


def cas(expected, value, began, ended, *, done, revision=None, by_revision=False):
    reply = CallerReply(done=done, revision=revision)
    return CallerCall("c", "k", Kind.COMPARE_AND_SET, began, ended, value, expected, by_revision, reply)


def add(number, value, began, ended, revision=None):
    return CallerCall(
        "i", "k", Kind.INCREMENT, began, ended, argument=number, reply=CallerReply(value=value, revision=revision)
    )


def delete(began, ended, *, done=True, revision=None):
    return CallerCall("d", "k", Kind.DELETE, began, ended, reply=CallerReply(done=done, revision=revision))


def lost(call):
    """The same call, its outcome unknown."""
    return call._replace(reply=None, ended_s=math.inf)


GOOD = {
    "nothing": [],
    "a read sees the write before it": [put("a", 0, 1), get("a", 2, 3)],
    "a read beside a write sees either": [put("a", 0, 1), put("b", 2, 9), get("a", 3, 4), get("b", 5, 6)],
    "two reads beside a write see new then new": [put("a", 0, 9), get("a", 1, 2), get("a", 3, 4)],
    "writes that overlap take either order": [put("a", 0, 9), put("b", 1, 8), get("a", 10, 11)],
    "an end and a begin at one instant overlap": [put("a", 0, 1), get(None, 1, 2)],
    "a write of unknown outcome is seen late": [put("a", 0, 1), lost(put("b", 2, 3)), get("a", 4, 5), get("b", 8, 9)],
    "a write of unknown outcome is never seen": [put("a", 0, 1), lost(put("b", 2, 3)), get("a", 8, 9)],
    "an unknown delete takes effect in between": [put("a", 0, 1), lost(delete(2, 3)), get("a", 4, 5), get(None, 6, 7)],
    "an unknown increment counts": [add(1, 1, 0, 1), lost(add(1, 0, 2, 3)), add(1, 3, 4, 5)],
    "compare-and-set by value": [put("a", 0, 1), cas("a", "b", 2, 3, done=True), cas("a", "c", 4, 5, done=False)],
    "compare-and-set of no key": [cas(None, "b", 0, 1, done=True), cas(None, "c", 2, 3, done=False)],
    "compare-and-set by revision": [
        put("a", 0, 1, revision=7),
        cas(7, "b", 2, 3, done=True, revision=9, by_revision=True),
        cas(7, "c", 4, 5, done=False, revision=9, by_revision=True),
    ],
    "compare-and-set that deletes": [put("a", 0, 1, 3), cas("a", None, 2, 3, done=True, revision=4), get(None, 5, 6)],
    "a compare-and-set names the revision of an unknown write": [
        put("a", 0, 1, revision=3),
        lost(put("b", 2, 3)),
        cas(5, "c", 4, 5, done=True, revision=8, by_revision=True),
    ],
    "a delete of nothing says so": [delete(0, 1, done=False), put("a", 2, 3), delete(4, 5), delete(6, 7, done=False)],
    "revisions rise": [put("a", 0, 1, revision=3), get("a", 2, 3, revision=3), put("a", 4, 5, revision=9)],
    "keys are independent": [put("a", 0, 1), put("b", 0, 1, key="l"), get("a", 2, 3), get("b", 2, 3, key="l")],
}

BAD = {
    "a stale read": [put("a", 0, 1), put("b", 2, 3), get("a", 4, 5)],
    "a read of nothing after a write": [put("a", 0, 1), get(None, 2, 3)],
    "a read of what nobody wrote": [put("a", 0, 1), get("b", 2, 3)],
    "reads that go back": [put("a", 0, 1), put("b", 2, 9), get("b", 3, 4), get("a", 5, 6)],
    "readers that disagree on an order": [
        put("a", 0, 9), put("b", 0, 9), get("a", 10, 11), get("b", 10, 11),
    ],
    "a lost update": [put("a", 0, 1), cas("a", "b", 2, 3, done=True), cas("a", "c", 4, 5, done=True)],
    "two increments to the same number": [add(1, 1, 0, 5), add(1, 1, 1, 6)],
    "an increment applied twice": [add(1, 1, 0, 1), get(2, 2, 3)],
    "a value that is back after its delete": [put("a", 0, 1), delete(2, 3), get("a", 4, 5)],
    "an unknown write that is taken back": [put("a", 0, 1), lost(put("b", 2, 3)), get("b", 4, 5), get("a", 6, 7)],
    "an unknown write before it began": [get("b", 0, 1), lost(put("b", 2, 3))],
    "a no of a compare-and-set that matched": [put("a", 0, 1), cas("a", "b", 2, 3, done=False)],
    "a no of one by revision that names the revision expected": [
        put("a", 0, 1, revision=3), cas(3, "b", 2, 3, done=False, revision=3, by_revision=True),
    ],
    "a yes to a revision long gone": [
        put("a", 0, 1, revision=3), put("b", 2, 3, revision=4),
        cas(3, "c", 4, 5, done=True, revision=6, by_revision=True),
    ],
    "a delete that found nothing": [put("a", 0, 1), delete(2, 3, done=False)],
    "the right value at a wrong revision": [put("a", 0, 1, revision=3), get("a", 2, 3, revision=4)],
    "a revision that goes back": [put("a", 0, 1, revision=5), put("b", 2, 3, revision=4)],
    "a rewritten value that a stale read cannot have": [
        put("a", 0, 1, revision=1), put("b", 2, 3, revision=2), put("a", 4, 5, revision=3), get("a", 6, 7, revision=1),
    ],
    "one of two keys": [put("a", 0, 1), get("a", 2, 3), put("b", 0, 1, key="l"), get(None, 2, 3, key="l")],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_history_is_accepted_when_some_order_explains_it(name) -> None:
    for calls in itertools.islice(itertools.permutations(GOOD[name]), 24):
        assert check_history(calls).is_linearizable, check_history(calls).explain()


@pytest.mark.parametrize("name", BAD)
def test_a_history_is_refused_when_no_order_explains_it(name) -> None:
    verdict = check_history(BAD[name])
    assert verdict.finding is CheckOutcome.VIOLATED
    assert verdict.key in {"k", "l"}
    assert "next must be one of [" in verdict.explain()


def test_the_explanation_names_the_calls_around_the_violation() -> None:
    text = check_history([put("a", 0, 1, 1), put("b", 2, 3, 2), get("a", 4, 5, 1, client="late")]).explain()
    assert text == (
        "key 'k': violated after 2 configurations: 1 of 3 calls can be put in an order, which ends with [put 'a' by w "
        "from 0.000000 to 1.000000: done at 1] and leaves the key at 'a', revision 1; next must be one of [put 'b' by "
        "w from 2.000000 to 3.000000: done at 2]; not behind revision 1: [get by late from 4.000000 to 5.000000: 'a' "
        "at 1]"
    )


def test_running_out_of_budget_is_no_verdict() -> None:
    calls = [lost(put(number, 0, 1)) for number in range(30)] + [put("a", 2, 3), get("b", 4, 5)]
    verdict = check_history(calls, state_count_max=1_000)
    assert verdict.finding is CheckOutcome.UNKNOWN
    assert not verdict.is_linearizable
    assert verdict.state_count <= 1_000


def test_a_thousand_equal_unknown_deletes_cost_no_more_than_one() -> None:
    calls = [put("a", 0, 1), *(lost(delete(2, 3)) for _ in range(1_000)), get(None, 4, 5), get(None, 6, 7)]
    verdict = check_history(calls, state_count_max=50)
    assert verdict.is_linearizable


def test_a_history_outlives_its_process() -> None:
    history = played(random.Random(1), 100, clients=3, values=9, unknown=0.2)
    assert decode_history(encode_history(history)) == history


def test_revisions_order_the_writes_of_all_keys() -> None:
    ordered = [put("a", 0, 1, 1, key="k"), put("b", 2, 3, 2, key="l"), get("b", 2, 3, 2, key="l")]
    assert check_revision_order(ordered).is_linearizable
    twice = [put("a", 0, 1, 1, key="k"), put("b", 2, 3, 1, key="l")]
    assert "given twice" in check_revision_order(twice).explain()
    back = [put("a", 0, 1, 5, key="k"), put("b", 2, 3, 4, key="l")]
    assert "has the higher revision" in check_revision_order(back).explain()


# ---- against real orders, and against a checker that tries everything


class Register:
    """A map of one key that gives the replies which the checker should accept."""

    def __init__(self) -> None:
        self.value, self.revision, self.log = None, 0, 0

    def _write(self, value) -> int:
        self.log += 1
        self.value, self.revision = value, 0 if value is None else self.log
        return self.log

    def apply(self, call: CallerCall) -> CallerReply:
        match call.kind:
            case Kind.GET:
                return CallerReply(value=self.value, revision=self.revision)
            case Kind.PUT:
                return CallerReply(revision=self._write(call.argument))
            case Kind.DELETE:
                return CallerReply(revision=self._write(None)) if self.value is not None else CallerReply(done=False)
        is_as_expected = call.expected == (self.revision or None if call.by_revision else self.value)
        if is_as_expected:
            return CallerReply(revision=self._write(call.argument))
        return CallerReply(done=False, revision=self.revision)


def asked(rng: random.Random, began: float, ended: float, client: int, values: int, by_revision: bool) -> CallerCall:
    kind = rng.choice([Kind.PUT, Kind.PUT, Kind.GET, Kind.GET, Kind.COMPARE_AND_SET, Kind.DELETE])
    argument = None if kind in (Kind.GET, Kind.DELETE) else rng.randrange(values)
    by_revision = by_revision and rng.random() < 0.5
    expected = rng.choice([None, rng.randrange(1, values)]) if kind is Kind.COMPARE_AND_SET else None
    return CallerCall(client, "k", kind, began, ended, argument, expected, by_revision)


def played(
    rng: random.Random, count: int, *, clients: int, values: int, unknown: float, by_revision: bool = True
) -> list[CallerCall]:
    """A history in which each call took effect at an instant of its own; some never did, and nobody knows."""
    free = [0.0] * clients
    calls = []
    for _ in range(count):
        client = min(range(clients), key=lambda n: free[n])
        began = free[client] + rng.random()
        ended = began + rng.expovariate(0.5)
        free[client] = ended
        calls.append((rng.uniform(began, ended), asked(rng, began, ended, client, values, by_revision)))
    register, history = Register(), []
    for _, call in sorted(calls, key=lambda pair: pair[0]):
        is_unknown = rng.random() < unknown
        if is_unknown and rng.random() < 0.5:
            history.append(lost(call))
            continue
        reply = register.apply(call)
        history.append(lost(call) if is_unknown else call._replace(reply=reply))
    return history


@pytest.mark.parametrize("seed", range(30))
def test_what_a_real_map_answers_is_accepted(seed: int) -> None:
    rng = random.Random(seed)
    history = played(rng, 600, clients=12, values=rng.choice([4, 10_000]), unknown=rng.choice([0.0, 0.05]))
    verdict = check_history(history)
    assert verdict.is_linearizable, verdict.explain()
    assert check_revision_order(history).is_linearizable


def without_revisions(call: CallerCall) -> CallerCall:
    if call.reply is None:
        return call
    return call._replace(reply=call.reply._replace(revision=None))


@pytest.mark.parametrize("seed", range(30))
def test_what_a_real_map_answers_is_accepted_without_its_revisions(seed: int) -> None:
    history = played(random.Random(seed), 300, clients=6, values=10_000, unknown=0.02, by_revision=False)
    verdict = check_history(without_revisions(call) for call in history)
    assert verdict.is_linearizable, verdict.explain()


def tries_everything(history: list[CallerCall]) -> bool:
    """Put the calls in every order that time allows, unknown ones in or out."""
    known = [call for call in history if call.reply is not None]
    unknown = [call for call in history if call.reply is None and call.kind is not Kind.GET]

    def fits(left: list[CallerCall], loose: list[CallerCall], register: tuple) -> bool:
        if not left:
            return True
        end = min(call.ended_s for call in left)
        for call in left:
            if call.began_s <= end:
                state = Register()
                state.value, state.revision, state.log = register
                if state.apply(call)._replace(revision=None) == call.reply._replace(revision=None) and fits(
                    [c for c in left if c is not call], loose, (state.value, state.revision, state.log)
                ):
                    return True
        for call in loose:
            if call.began_s <= end:
                state = Register()
                state.value, state.revision, state.log = register
                state.apply(call)
                if fits(left, [c for c in loose if c is not call], (state.value, state.revision, state.log)):
                    return True
        return False

    return fits(known, unknown, (None, 0, 0))


def spoilt(rng: random.Random, history: list[CallerCall]) -> list[CallerCall]:
    """Change one reply: another value read, a yes for a no."""
    history = list(history)
    answered = [index for index, call in enumerate(history) if call.reply is not None]
    index = rng.choice(answered)
    call = history[index]
    if call.kind is Kind.GET:
        history[index] = call._replace(reply=call.reply._replace(value=rng.choice([None, 0, 1, 2])))
    elif call.kind is not Kind.PUT:
        history[index] = call._replace(reply=call.reply._replace(done=not call.reply.done))
    return history


def test_it_agrees_with_a_checker_that_tries_everything() -> None:
    findings = []
    for seed in range(600):
        rng = random.Random(seed)
        history = [
            without_revisions(call) for call in played(rng, 7, clients=3, values=3, unknown=0.2, by_revision=False)
        ]
        if any(call.reply is not None for call in history):
            history = spoilt(rng, history)
        expected = tries_everything(history)
        assert check_history(history).is_linearizable is expected, f"seed {seed}"
        findings.append(expected)
    assert 100 < sum(findings) < 500


# ---- violations planted into long histories


def _stale_read(rng: random.Random, history: list[CallerCall]) -> list[CallerCall]:
    """A read hears what the key was before a write that was over when it began."""
    reads = [n for n, c in enumerate(history) if c.kind is Kind.GET and c.reply is not None]
    for index in rng.sample(reads, len(reads)):
        before = [c for c in history if c.kind is Kind.PUT and c.reply and c.ended_s < history[index].began_s]
        if len(before) > 2:
            old = min(before, key=lambda c: c.reply.revision)
            reply = CallerReply(value=old.argument, revision=old.reply.revision)
            return [*history[:index], history[index]._replace(reply=reply), *history[index + 1 :]]
    raise AssertionError("no place for a stale read")


def _lost_update(rng: random.Random, history: list[CallerCall]) -> list[CallerCall]:
    """A second compare-and-set with the same expectation is told yes, later."""
    known = [c for c in history if c.kind is Kind.PUT and c.reply]
    last = max(c.reply.revision for c in history if c.reply and c.reply.revision)
    end = max(c.ended_s for c in history if c.reply)
    old = rng.choice(known[:-1])
    again = CallerCall(
        "x", "k", Kind.COMPARE_AND_SET, end + 1, end + 2, "x", old.reply.revision, True, CallerReply(revision=last + 1)
    )
    return [*history, again]


def _resurrected_value(rng: random.Random, history: list[CallerCall]) -> list[CallerCall]:
    """What was deleted is read again."""
    last = max(c.reply.revision for c in history if c.reply and c.reply.revision)
    end = max(c.ended_s for c in history if c.reply)
    old = rng.choice([c for c in history if c.kind is Kind.PUT and c.reply])
    gone = CallerCall("d", "k", Kind.DELETE, end + 1, end + 2, reply=CallerReply(revision=last + 5))
    wrote = put("fresh", end + 0.2, end + 0.8, revision=last + 2)
    back = get(old.argument, end + 3, end + 4, revision=old.reply.revision)
    return [*history, wrote, gone, back]


@pytest.mark.parametrize("plant", [_stale_read, _lost_update, _resurrected_value])
@pytest.mark.parametrize("seed", range(10))
def test_a_planted_violation_is_found_in_a_long_history(
    plant: Callable[[random.Random, list[CallerCall]], list[CallerCall]], seed: int
) -> None:
    rng = random.Random(seed)
    history = played(rng, 300, clients=8, values=10_000, unknown=0.0)
    assert check_history(history).is_linearizable
    assert check_history(plant(rng, history)).finding is CheckOutcome.VIOLATED
