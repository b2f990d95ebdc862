"""Who gets how much: shares of thread time among tenants, in the long run and at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.machine.policies import TenantPolicy, WorkerOffer
from tests.unit.broker.machine.scheduling.brute_force import Checked
from tests.unit.broker.machine.scheduling.simulated_time import SimulatedTime


def simulated(threads: int = 8, workers: int = 1, **took_ms: int) -> SimulatedTime:
    simulation = SimulatedTime(lambda tenant: took_ms.get(tenant, 100))
    for n in range(workers):
        simulation.checked.worker(f"w{n}", WorkerOffer(threads_max=threads))
    return simulation


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("took_ms", [{"a": 100, "b": 100}, {"a": 50, "b": 400}, {"a": 400, "b": 50}])
def test_weights_of_three_to_one_give_three_times_the_thread_time(threads, took_ms):
    simulation = simulated(threads, **took_ms)
    simulation.checked.tenant("a", TenantPolicy(weight=3.0))
    for tenant in "ab":
        simulation.keep_waiting(tenant)
    for_ms = 200_000 // threads
    used = simulation.run(for_ms)
    assert used["a"] / used["b"] == pytest.approx(3.0, rel=0.05)
    assert used.total() == threads * for_ms


def test_tasks_that_take_no_time_are_shared_out_by_weight():
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=4))
    checked.tenant("a", TenantPolicy(weight=3.0))
    for tenant in "ab":
        checked.submit(tenant, count=2_000)
    started = []
    while len(started) < 2_000:
        done = checked.dispatch(check=False)
        started += [checked.running[task_id][0].tenant for task_id, _ in done]
        for task_id, _ in done:
            checked.end(task_id)
    assert started.count("a") / started.count("b") == pytest.approx(3.0, rel=0.02)


@settings(max_examples=12, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=5),
    durations=st.lists(st.sampled_from([20, 50, 200]), min_size=5, max_size=5),
    threads=st.sampled_from([1, 3, 16]),
)
def test_shares_are_within_a_few_tasks_of_the_weights(weights, durations, threads):
    names = [f"t{n}" for n in range(len(weights))]
    simulation = simulated(threads, **dict(zip(names, durations, strict=False)))
    for name, weight in zip(names, weights, strict=True):
        simulation.checked.tenant(name, TenantPolicy(weight=weight))
        simulation.keep_waiting(name)
    simulation.run(2_000)
    used = simulation.run(20_000)
    for name, weight in zip(names, weights, strict=True):
        # Beside what a quantum per dispatch costs those of short tasks, a few tasks at either end of the time.
        fair = used.total() * weight / sum(weights)
        assert used[name] == pytest.approx(fair, rel=0.06, abs=4 * 200)


def test_what_a_capped_tenant_leaves_is_shared_by_the_others():
    simulation = simulated(10)
    simulation.checked.tenant("a", TenantPolicy(running_max=1))
    simulation.checked.tenant("b", TenantPolicy(weight=2.0))
    for tenant in "abc":
        simulation.keep_waiting(tenant)
    used = simulation.run(60_000)
    assert [used[tenant] / 60_000 for tenant in "abc"] == pytest.approx([1, 6, 3], rel=0.05)


def test_a_tenant_that_can_run_on_few_workers_has_these_while_others_have_more_elsewhere():
    simulation = SimulatedTime(lambda _: 100)
    simulation.checked.worker("any", WorkerOffer(threads_max=10))
    simulation.checked.worker("plain", WorkerOffer(threads_max=10, threads_by_type={"plain": 10}))
    simulation.keep_waiting("a", type="plain")
    simulation.keep_waiting("b", type="special")
    used = simulation.run(60_000)
    assert [used[tenant] / 60_000 for tenant in "ab"] == pytest.approx([10, 10], rel=0.05)


@pytest.mark.parametrize("tenants", [1, 2, 10, 50])
def test_a_new_tenants_one_task_starts_within_as_many_dispatches_as_there_are_tenants(tenants):
    simulation = simulated(4)
    for n in range(tenants):
        simulation.keep_waiting(f"t{n}")
    simulation.run(30_000)
    for _ in range(20):
        simulation.checked.submit("new")
        before = len(simulation.order)
        simulation.run(2_000)
        assert simulation.order.index("new", before) - before <= tenants


def test_a_newcomer_has_its_share_after_one_task_of_the_others_and_no_more_than_it():
    simulation = simulated(100, a=1_000, b=1_000)
    simulation.keep_waiting("a")
    # Spread over time, as on a broker that has worked for a while.
    simulation.checked.tenant("a", TenantPolicy(running_max=1))
    for cap in range(2, 102):
        simulation.run(10)
        simulation.checked.tenant("a", TenantPolicy(running_max=cap))
    simulation.run(60_000)
    simulation.keep_waiting("b", count=300)
    running = []
    for _ in range(100):
        simulation.run(100)
        running.append(simulation.checked.running_of()["b"])
    assert running[15] >= 40
    assert max(running) <= 60
    assert min(running[15:]) >= 40


def test_tenants_with_long_jobs_and_with_short_tasks_have_the_same_share():
    simulation = simulated(8, long=5_000, short=20)
    for tenant in ("long", "short"):
        simulation.keep_waiting(tenant)
    simulation.run(20_000)
    used = simulation.run(100_000)
    assert used["long"] / used["short"] == pytest.approx(1.0, rel=0.15)


def test_a_change_of_weight_holds_from_the_next_dispatch():
    simulation = simulated(4)
    for tenant in "ab":
        simulation.keep_waiting(tenant)
    simulation.run(20_000)
    simulation.checked.tenant("a", TenantPolicy(weight=9.0))
    used = simulation.run(5_000)
    assert used["a"] / used["b"] == pytest.approx(9.0, rel=0.2)
    simulation.checked.tenant("a", None)
    used = simulation.run(5_000)
    assert used["a"] / used["b"] == pytest.approx(1.0, rel=0.1)


def test_who_was_away_has_no_credit_for_it():
    simulation = simulated(4)
    simulation.keep_waiting("a")
    simulation.keep_waiting("b")
    simulation.run(1_000)
    simulation.keep_waiting("b", count=0)
    simulation.run(600_000)
    simulation.keep_waiting("b")
    used = simulation.run(10_000)
    assert used["a"] / used["b"] == pytest.approx(1.0, rel=0.1)


def test_who_idles_for_a_moment_is_not_forgiven_what_it_used():
    simulation = simulated(4, b=1_000)
    simulation.keep_waiting("a", count=50)
    used = {"a": 0, "b": 0}
    for _ in range(300):  # b never has more than a few tasks waiting, and often none.
        simulation.checked.submit("b", count=3)
        for tenant, ms in simulation.run(700).items():
            used[tenant] += ms
    assert used["b"] / (used["a"] + used["b"]) <= 0.55


def test_who_was_held_or_capped_has_no_credit_for_it():
    simulation = simulated(4)
    for tenant in "abc":
        simulation.keep_waiting(tenant)
    simulation.checked.hold("b", "", "", True)
    simulation.checked.tenant("c", TenantPolicy(running_max=1))
    simulation.run(600_000)
    simulation.checked.hold("b", "", "", False)
    simulation.checked.tenant("c", None)
    used = simulation.run(12_000)
    assert [used[tenant] / used.total() for tenant in "abc"] == pytest.approx([1 / 3] * 3, rel=0.15)


def test_who_waited_for_full_workers_has_little_credit_for_it():
    simulation = SimulatedTime(lambda tenant: 3_600_000 if tenant == "blocker" else 500)
    simulation.checked.worker("w", WorkerOffer(threads_max=20, resources={"gpu": 1}))
    simulation.checked.submit("blocker", resources=[("gpu", 1)])
    simulation.run(10)
    simulation.checked.submit("a", resources=[("gpu", 1)])
    simulation.keep_waiting("b")
    simulation.run(100_000)
    simulation.keep_waiting("a")
    simulation.run(20_000)
    used = simulation.run(10_000)
    assert used["a"] / used["b"] == pytest.approx(1.0, rel=0.2)


def test_a_weight_of_nearly_nothing_gives_nearly_nothing_and_stays_a_number():
    simulation = simulated(4)
    simulation.checked.tenant("a", TenantPolicy(weight=1e-300))
    for tenant in "ab":
        simulation.keep_waiting(tenant)
    used = simulation.run(10_000)
    assert used["a"] <= 1_000
    simulation.checked.tenant("a", None)
    simulation.keep_waiting("b", count=0)
    simulation.run(10_000)
    assert simulation.checked.running_of()["a"] == 4
    simulation.checked.check_limits()
