from __future__ import annotations

import pytest

from broker.machine.policies import WorkerOffer
from broker.worker.leader import parse_addresses
from broker.worker.option_units import amounts, numbers
from broker.worker.settings import WorkerSettings
from ledger.errors import UsageError


def test_types_are_offered_as_they_were_named() -> None:
    settings = WorkerSettings(worker_id="w", threads=8, types=amounts("mail=4,*", "--types", 8), groups=(1, 0))
    assert settings.offer(["mail"]) == WorkerOffer(8, {"mail": 4}, 8, (1, 0))
    assert settings.offer(["mail"]).threads_for("mail") == 4
    assert settings.offer(["mail"]).threads_for("sms") == 8


def test_without_types_all_that_the_executor_can_run_is_offered() -> None:
    settings = WorkerSettings(worker_id="w", threads=3)
    offer = settings.offer(["mail", "sms"])
    assert (offer.threads_for("mail"), offer.threads_for("other")) == (3, 0)
    assert settings.offer(None).threads_for("anything") == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_id": ""},
        {"worker_id": "x" * 300},
        {"threads": 0},
        {"groups": ()},
        {"types": {"": 1}},
        {"resources": {"gpu": -1}},
        {"tenant_share_percent": 101},
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        WorkerSettings(**{"worker_id": "w", **fields}).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["mail=", "=4", "mail=x", "mail=-1", "a=1,a=2"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--resources"):
        amounts(text, "--resources")


def test_amounts_and_numbers_are_read() -> None:
    assert amounts("gpu=1, db=20", "--resources") == {"gpu": 1, "db": 20}
    assert amounts("", "--resources") == {}
    assert numbers("1,0", "--groups") == (1, 0)
    with pytest.raises(UsageError, match="--groups"):
        numbers("1,x", "--groups")


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":70", "localhost:x", "localhost:70000"])
def test_addresses_that_are_none_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected host:port"):
        parse_addresses([address])
