"""The bytes of the log, for fixed examples: what older replicas, snapshots and Spark jobs read stays as it is."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from broker.machine import commands as c
from broker.machine.policies import RetryPolicy, TenantPolicy, WorkerOffer
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import pack
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

_DESCRIPTION_SHA256 = "945c5f68e55b121a483f4993fa41d64eb209bd25fc08ba2ccf49468da147fcb5"
_LOG_SHA256 = "2282ac2b533c219f0a851c2fa8f90663b53d867b52b1281fad14bd3485b4cdcf"
# The first record of each type in the log of `_driven`.
_EXAMPLES: dict[int, tuple[Any, ...]] = {
    RecordType.TASK_SUBMITTED: (
        5,
        "acme",
        "mail",
        b"payload",
        1000000000,
        True,
        7,
        8,
        9,
        "db=1,gpu=2",
        "slot",
        "key",
        1000000003,
        1000000090,
        60,
        70,
        "pool",
        "file:main",
        '{"backoff_ms": 5}',
        0,
    ),
    RecordType.TASK_CHANGED: (
        5,
        "acme",
        "mail",
        b"payload",
        1000000000,
        True,
        7,
        1,
        9,
        "",
        "slot",
        "key",
        1000000003,
        1000000090,
        60,
        70,
        "pool",
        "file:main",
        '{"backoff_ms": 5}',
        0,
    ),
    RecordType.TASK_REMOVED: (9,),
    RecordType.TASK_ASSIGNED: (9, 1, 1, "w", 0, 1000000005, 0, 0, 0, "", "", b""),
    RecordType.TASK_ENDED: (9, 2, 1, "w", 17, 1000000005, 1000000005, 0, 1000000005, "", "", b"done"),
    RecordType.TASK_REQUEUED: (9, 0, 0, "", 0, 0, 1000000005, 1000000002, 0, "", "", b""),
    RecordType.TASK_CANCEL_ASKED: (9, 1, 1, "w", 17, 1000000005, 0, 0, 1000000005, "cancelled", "", b""),
    RecordType.STATE_REMOVED: (9,),
    RecordType.PROGRESS_REPORTED: (9, 17, 1000000005, 0.5, "half"),
    RecordType.PROGRESS_REMOVED: (9,),
    RecordType.LATE_END: (9, 1, "w", 2, 1000000005, "", b"late"),
    RecordType.RUN_DISOWNED: (99, 98, "w"),
    RecordType.SLOT_TAKEN: ("acme", "slot", 5),
    RecordType.SLOT_RELEASED: ("acme", "slot"),
    RecordType.REQUEST_NOTED: ("acme", "once", b"\x94\x01\x05\x01\x90", 1000000000),
    RecordType.REQUEST_FORGOTTEN: ("acme", "once"),
    RecordType.TRANSACTION_BEGUN: (26, "bolt", 1000000005, 1000000045),
    RecordType.TRANSACTION_COMMITTED: (26, 1000000005),
    RecordType.TRANSACTION_ROLLED_BACK: (31,),
    RecordType.TRANSACTION_GIVEN_UP: (33, "bolt", 1000000005, 0),
    RecordType.WORKER_CONNECTED: (
        "w",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        0,
        "here",
        1000000000,
        1000000000,
        '{"threads_max":3,"threads_by_type":{},"any_type_threads":null,"groups":[0,9],"excluded_groups":[],"resources":{"db":1},"tenant_share_percent":0}',
        "",
        1,
    ),
    RecordType.WORKER_CHANGED: (
        "w",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        0,
        "here",
        1000000000,
        1000000000,
        '{"threads_max":4,"threads_by_type":{},"any_type_threads":null,"groups":[0],"excluded_groups":[],"resources":{},"tenant_share_percent":0}',
        "",
        1,
    ),
    RecordType.WORKER_DIED: (
        "w",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        1,
        "here",
        1000000000,
        1000000055,
        '{"threads_max":4,"threads_by_type":{},"any_type_threads":null,"groups":[0],"excluded_groups":[],"resources":{},"tenant_share_percent":0}',
        "",
        1,
    ),
    RecordType.WORKER_REMOVED: ("w",),
    RecordType.TENANT_SET: (
        "acme",
        2.0,
        3,
        0,
        '{"running_max_by_type":{},"group":1,"priority":4,"max_attempts":0,"retry":{"backoff_ms":20,"factor":2.0,"backoff_ms_max":3600000,"jitter":0.1,"rules":[]},"retention_ms":null,"dead_retention_ms":null}',
    ),
    RecordType.TENANT_REMOVED: ("acme",),
    RecordType.HOLD_SET: ("acme", "sms", "k", True, False, 1000000010, "why [by operator]"),
    RecordType.HOLD_ENDED: ("acme", "sms", "k"),
    RecordType.RESOURCE_LIMITED: ("db", "acme", "mail", 5),
    RecordType.RESOURCE_UNLIMITED: ("db", "acme", "mail"),
    RecordType.CODE_DEPLOYED: (
        "pool",
        1000000000,
        50,
        "4a70fe9aa6436e02c2dea340fbd1e352e4ef2d8ce6ca52ad25d4b95471fc8bf2",
        b"zip",
    ),
    RecordType.CODE_REMOVED: ("pool",),
}


def _driven() -> DrivenBroker:
    """A broker whose log has a record of every type."""
    broker = DrivenBroker(BrokerRules(retention_ms=1_000, worker_retention_ms=1_000, request_retention_ms=500))
    broker.run(c.DeployCode("pool", b"zip", sha256(b"zip").hexdigest(), 50))
    broker.run(c.SetTenant("acme", TenantPolicy(2, 3, priority=4, retry=RetryPolicy(backoff_ms=20))))
    broker.run(c.LimitResource("db", 5, "acme", "mail"))
    broker.run(c.SetHold("acme", "sms", "k", until_ms=START_MS + 10, reason="why"))
    full = c.TaskSpec(
        "mail", b"payload", True, 7, 8, 9, {"gpu": 2, "db": 1}, "slot", "key", START_MS + 3, 0, START_MS + 90, 0, 60,
        70, "pool", "file:main", '{"backoff_ms": 5}',
    )  # fmt: skip
    (task,) = broker.submit(full, request_key="once")
    broker.run(c.ChangeTasks("acme", [task], priority=1, resources={}))
    plain, cancelled, *_ = broker.submit(c.TaskSpec("sms", delay_ms=2), *[c.TaskSpec("web", slot="s")] * 2)
    offer = WorkerOffer(3, groups=(0, 9), resources={"db": 1})
    broker.run(c.WorkerAppeared("w", "a" * 32, "here", offer, held=[c.HeldRun(99, 98)], stream=1))
    broker.run(c.WorkerChanged("w", "a" * 32, WorkerOffer(4)))
    broker.pass_time(5)
    runs = {run.task_id: run.assignment_id for run in broker.machine.tasks.runs_of("w")}
    first, second = list(runs.items())[:2]
    broker.run(c.CancelTasks("acme", [first[0]]))
    progress = [c.ProgressOf(*first, 0.5, "half")]
    broker.run(c.ReportRuns("w", "a" * 32, progress=progress))
    ended = [c.EndedRun(*second, int(TaskStatus.ERROR), "FAILED", "no luck")]
    broker.run(c.ReportRuns("w", "a" * 32, ended))
    broker.run(c.ReportRuns("w", "a" * 32, [c.EndedRun(*first, int(TaskStatus.FINISHED), result=b"done")]))
    broker.run(c.ReportRuns("w", "a" * 32, [c.EndedRun(first[0], 1, int(TaskStatus.FINISHED), result=b"late")]))
    for way in (c.CommitTransaction, c.RollbackTransaction):
        begun = broker.run(c.BeginTransaction("bolt", 40))
        broker.run(c.SubmitTasks("bolt", [c.TaskSpec("mail", slot="t")], "", begun.transaction))
        broker.run(way("bolt", begun.transaction))
    broker.run(c.BeginTransaction("bolt", 40))
    broker.pass_time(50)
    broker.run(c.LimitResource("db", None, "acme", "mail"))
    broker.run(c.RemoveTenant("acme"))
    broker.run(c.CancelTasks("", sorted(broker.machine.tasks.by_id)))
    broker.run(c.WorkerLost("w", "a" * 32, is_dead=True))
    for _ in range(9):
        broker.pass_time(500)
    return broker


def test_the_description_has_the_bytes_that_it_always_had() -> None:
    assert sha256(encode_description(BROKER_DESCRIPTION)).hexdigest() == _DESCRIPTION_SHA256


def test_a_record_of_each_type_has_the_bytes_that_it_always_had() -> None:
    assert {record.type for record in BROKER_DESCRIPTION.records} == set(_EXAMPLES)
    log = _driven().log
    first: dict[int, tuple[Any, ...]] = {}
    for _, record_type, fields in log:
        first.setdefault(record_type, fields)
    for record_type, example in _EXAMPLES.items():
        assert pack(first[record_type]) == pack(example), first[record_type]
    assert (
        sha256(b"".join(pack((revision, kind, *fields)) for revision, kind, fields in log)).hexdigest() == _LOG_SHA256
    )


def test_rows_have_the_bytes_of_their_records() -> None:
    broker = _driven()
    broker.submit(c.TaskSpec("mail", b"payload", slot="s"))
    table = next(one for one in BROKER_DESCRIPTION.tables if one.name == "tasks")
    fields = broker.logged(RecordType.TASK_SUBMITTED)[-1]
    width = len(table.key)
    found = {row.key: row.row for row in broker.machine.rows() if row.table == "tasks"}
    assert found[pack(fields[:width])] == pack(fields[width:])
