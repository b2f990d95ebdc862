"""Random tasks, workers and rules, checked against brute force at every assignment."""

# ruff: noqa: A001, A002 - as the scheduler names it

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.sweeping import sweep
from tests.sets import examples
from tests.unit.broker.machine.scheduling.brute_force import Checked

TENANTS = st.sampled_from(["a", "b", "c"])
TYPES = st.sampled_from(["x", "y", "z"])
GROUPS = st.integers(1, 3)
KEYS = st.sampled_from(["", "", "k", "l"])
RESOURCES = st.sampled_from([(), (), (("r", 1),), (("r", 2),), (("r", 1), ("s", 1)), (("s", 3),)])
OFFERS = st.builds(
    WorkerOffer,
    threads_max=st.integers(0, 4),
    threads_by_type=st.dictionaries(TYPES, st.integers(0, 3), max_size=2),
    any_type_threads=st.sampled_from([None, 0, 1, 3]),
    groups=st.sampled_from([(0,), (1,), (2, 0), (3, 1), (0, 2), ()]),
    excluded_groups=st.sampled_from([(), (), (1,), (3,)]),
    resources=st.dictionaries(st.sampled_from(["r", "s"]), st.integers(0, 4), max_size=2),
    tenant_share_percent=st.sampled_from([0, 0, 30, 50]),
    tenants=st.sampled_from([None, None, ("a",), ("c", "b"), ("strange",), ()]),
)
POLICIES = st.builds(
    TenantPolicy,
    weight=st.sampled_from([0.5, 1.0, 3.0]),
    running_max=st.integers(0, 3),
    running_max_by_type=st.dictionaries(TYPES, st.integers(0, 2), max_size=2),
)
WORKERS = st.sampled_from(["w1", "w2", "w3"])


class RandomBroker(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.checked = Checked()
        self.exhausted = False

    @initialize(offer=OFFERS)
    def has_a_worker(self, offer):
        self.checked.worker("w0", offer)
        self.checked.worker("w1", WorkerOffer(threads_max=2))

    @rule(
        tenant=TENANTS, type=TYPES, group=GROUPS, priority=st.integers(-1, 1), resources=RESOURCES, key=KEYS,
        count=st.sampled_from([1, 1, 2, 40]),
    )  # fmt: skip
    def submit(self, **asked):
        self.checked.submit(**asked)

    @rule(offer=OFFERS | st.none(), worker=WORKERS)
    def set_worker(self, worker, offer):
        self.checked.worker(worker, offer)

    @rule(tenant=TENANTS, policy=POLICIES | st.none())
    def set_tenant(self, tenant, policy):
        self.checked.tenant(tenant, policy)

    @rule(tenant=TENANTS | st.just(""), type=TYPES | st.just(""), is_paused=st.booleans())
    def hold(self, tenant, type, is_paused):
        self.checked.hold(tenant, type, "", is_paused)

    @rule(tenant=TENANTS, type=TYPES | st.just(""), key=st.sampled_from(["k", "l"]), is_paused=st.booleans())
    def hold_key(self, tenant, type, key, is_paused):
        self.checked.hold(tenant, type, key, is_paused)

    @rule(
        resource=st.sampled_from(["r", "s"]), tenant=TENANTS | st.just(""), type=TYPES | st.just(""),
        amount_max=st.sampled_from([None, 0, 1, 2, 5]),
    )  # fmt: skip
    def limit(self, **limit):
        self.checked.limit(**limit)

    @precondition(lambda self: self.checked.waiting)
    @rule(pick=st.randoms(use_true_random=False), resources=RESOURCES, group=GROUPS, priority=st.integers(-2, 2))
    def change(self, pick, resources, group, priority):
        demand = pick.choice(list(self.checked.waiting.values()))
        fields = {name: getattr(demand, name) for name in demand.__struct_fields__}
        fields |= {"resources": resources, "group": group, "priority": priority}
        self.checked.change(type(demand)(**fields))

    @precondition(lambda self: self.checked.waiting)
    @rule(pick=st.randoms(use_true_random=False))
    def withdraw(self, pick):
        self.checked.withdraw(pick.choice(list(self.checked.waiting)))

    @precondition(lambda self: self.checked.running)
    @rule(pick=st.randoms(use_true_random=False), again=st.booleans(), share=st.sampled_from([0.1, 0.5, 1.0]))
    def end(self, pick, again, share):
        running = sorted(self.checked.running)
        for task_id in pick.sample(running, max(1, int(len(running) * share))):
            self.checked.end(task_id, again=again)

    @precondition(lambda self: self.checked.waiting)
    @rule(pick=st.randoms(use_true_random=False))
    def start_as_a_follower_does(self, pick):
        """A record says what the leader chose: it is not asked whether we would have."""
        task_id = pick.choice(list(self.checked.waiting))
        worker_id = pick.choice(["w0", "w1", "w2"])
        self.checked.scheduler.start(task_id, worker_id, self.checked.now_ms)
        self.checked.running[task_id] = (self.checked.waiting.pop(task_id), worker_id, self.checked.now_ms)

    @rule(passed_ms=st.sampled_from([1, 10, 1000, 100_000]))
    def wait(self, passed_ms):
        self.checked.now_ms += passed_ms

    @rule(most=st.sampled_from([1, 3]))
    def dispatch_some(self, most):
        self.checked.dispatch(most)

    @rule()
    def forget_what_is_empty(self):
        sweep(self.checked.scheduler._state)

    @rule()
    def dispatch_all(self):
        self.checked.dispatch()
        self.checked.check_exhausted()

    @invariant()
    def everything_adds_up(self):
        self.checked.check_limits()

    def teardown(self):
        for task_id in list(self.checked.running):
            self.checked.end(task_id)
        for task_id in list(self.checked.waiting):
            self.checked.withdraw(task_id)
        self.checked.check_limits()


TestRandomBroker = RandomBroker.TestCase
TestRandomBroker.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
