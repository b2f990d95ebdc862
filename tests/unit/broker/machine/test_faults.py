"""What is wrong with what somebody sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.machine.faults import (
    name_fault,
    number_fault,
    offer_fault,
    policy_fault,
    resource_name_fault,
    resources_fault,
    retry_fault,
    text_fault,
)
from broker.machine.limits import NAME_BYTES_MAX
from broker.machine.policies import TenantPolicy, WorkerOffer


@given(name=st.text(st.characters(), max_size=300))
def test_a_name_without_a_fault_is_short_unicode_without_control_characters(name: str) -> None:
    is_unicode = not any("\ud800" <= char <= "\udfff" for char in name)
    is_sound = (
        bool(name)
        and is_unicode
        and len(name.encode()) <= NAME_BYTES_MAX
        and all(char >= " " and char != "\x7f" for char in name)
    )
    assert (name_fault("name", name) == "") == is_sound


def test_half_a_character_is_no_name() -> None:
    assert "Unicode" in name_fault("name", "a\ud800")


@given(text=st.text(max_size=200))
def test_any_text_as_a_retry_policy_is_a_sentence_at_worst(text: str) -> None:
    assert isinstance(retry_fault(text), str)


@pytest.mark.parametrize(
    "fault",
    [
        name_fault("name", ""),
        number_fault("n", 5, 0, 4),
        text_fault("t", "ééé", 5),
        resource_name_fault("a=b"),
        resources_fault({"db": 0}),
        policy_fault(TenantPolicy(weight=float("nan"))),
        offer_fault(WorkerOffer(-1)),
        retry_fault("{"),
    ],
)
def test_a_fault_is_a_sentence(fault: str) -> None:
    assert len(fault) > 10


def test_what_is_sound_has_no_fault() -> None:
    assert not name_fault("name", "", may_be_empty=True)
    assert not name_fault("name", "Überweisung · 送金")
    assert not policy_fault(TenantPolicy())
    assert not offer_fault(WorkerOffer())
    assert not retry_fault("{}")
    assert not resources_fault({"db": 0}, low=0)
