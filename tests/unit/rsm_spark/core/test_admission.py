"""Who may take part in a log."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.admission import (
    AdmissionError,
    FormatLevelError,
    LedgerPasswordError,
    check_admission,
    password_mark,
)
from rsm_spark.core.chain import LogChain
from rsm_spark.errors import ForkedLogError

LOG_ID = "ab" * 16
CHAIN = LogChain(LOG_ID, password_mark=password_mark(b"secret", LOG_ID))


def test_mark_tells_the_same_password_and_not_what_it_is() -> None:
    assert CHAIN.password_mark == password_mark(b"secret", LOG_ID)
    assert "secret" not in CHAIN.password_mark
    check_admission(CHAIN, log_name="orders", format_level=1, mark=password_mark(b"secret", LOG_ID))


def test_equal_passwords_of_two_logs_have_different_marks() -> None:
    assert password_mark(b"secret", LOG_ID) != password_mark(b"secret", "cd" * 16)


@pytest.mark.parametrize(("password", "said"), [(b"Secret", "another one"), (b"", "none")])
def test_another_password_is_refused_without_being_shown(password: bytes, said: str) -> None:
    with pytest.raises(LedgerPasswordError, match=f"log orders: .*was given {said}") as caught:
        check_admission(CHAIN, log_name="orders", format_level=1, mark=password_mark(password, LOG_ID))
    assert "ecret" not in str(caught.value)


def test_password_for_a_log_without_one_is_refused() -> None:
    chain = LogChain(LOG_ID, password_mark=password_mark(b"", LOG_ID))
    with pytest.raises(LedgerPasswordError, match="its ledgers have no password"):
        check_admission(chain, log_name="orders", format_level=1, mark=password_mark(b"secret", LOG_ID))


def test_chain_that_nobody_has_claimed_yet_and_a_mere_reader_are_not_judged() -> None:
    check_admission(LogChain(LOG_ID), log_name="orders", format_level=1, mark="none")
    check_admission(CHAIN, log_name="orders", format_level=1, mark="")


def test_version_that_knows_less_than_the_log_is_refused_and_one_that_knows_more_is_not() -> None:
    chain = msgspec.structs.replace(CHAIN, format_level=3)
    check_admission(chain, log_name="orders", format_level=4, mark="")
    with pytest.raises(FormatLevelError, match="format level 3, this version knows up to 2: start a newer version"):
        check_admission(chain, log_name="orders", format_level=2, mark="")


def test_state_of_another_log_of_that_name_is_refused_before_its_password_is() -> None:
    check_admission(CHAIN, log_name="orders", format_level=1, mark=CHAIN.password_mark, log_id=LOG_ID)
    with pytest.raises(ForkedLogError, match=f"is of log {'cd' * 16}, the metadata store has log {LOG_ID}"):
        check_admission(CHAIN, log_name="orders", format_level=1, mark="none", log_id="cd" * 16)


def test_nobody_takes_part_in_a_log_that_is_still_being_made() -> None:
    chain = msgspec.structs.replace(CHAIN, unfinished="ops, since 2026-11-23T14:00:00Z,")
    with pytest.raises(AdmissionError, match="log orders: ops, since .* is making it of another log: start the rep"):
        check_admission(chain, log_name="orders", format_level=1, mark="")
