"""What the history takes for granted of the broker is so: the connectors do not import it, this test does."""

from __future__ import annotations

import msgspec

from broker.machine import statuses, tables
from broker.machine.policies import TenantPolicy, WorkerOffer
from connectors.history import words


def test_statuses_have_the_numbers_and_names_of_the_broker() -> None:
    assert {int(status): status.name.lower() for status in statuses.TaskStatus} == words.STATUS_WORDS
    assert {int(status): status.name.lower() for status in statuses.WorkerStatus} == words.WORKER_STATUS_WORDS
    assert {status.name.lower() for status in statuses.ENDED} == words.ENDED_STATUSES


def test_a_tenant_of_whom_nothing_was_said_has_the_brokers_defaults() -> None:
    policy = TenantPolicy()
    assert (policy.group, policy.priority) == (words.GROUP_DEFAULT, words.PRIORITY_DEFAULT)
    assert tables.PRIORITY_OF_TENANT == words.PRIORITY_OF_TENANT
    assert WorkerOffer().threads_max == 1


def test_every_kind_of_fact_is_a_record_of_the_broker() -> None:
    assert tables.BROKER_DESCRIPTION.name == words.MACHINE_NAME
    names = {record.name for record in tables.BROKER_DESCRIPTION.records}
    assert set(words.FactKind) <= names


def test_policies_and_offers_name_what_is_read_of_them() -> None:
    assert {"group", "priority"} <= msgspec.to_builtins(TenantPolicy()).keys()
    assert "threads_max" in msgspec.to_builtins(WorkerOffer())
