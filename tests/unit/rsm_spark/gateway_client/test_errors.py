"""What a gateway says no with is raised as the exception that the library has for it."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.producers import PartitionsChangedError, ProducerGapError
from rsm_spark.errors import AccessDeniedError, LogError, MissingLogError
from rsm_spark.gateway.calls import problem_of
from rsm_spark.gateway_client.errors import REFUSALS, GatewayProblem, GatewayRefusedError, refusal_of


def _over_the_wire(error: Exception) -> Exception:
    problem = problem_of(error, "/v1/logs/a/records")
    assert problem is not None
    reply = problem.reply()
    return refusal_of("POST /v1/logs/a/records", reply.status, msgspec.json.decode(reply.body, type=GatewayProblem))


@pytest.mark.parametrize("kind", [kind for kind, _, reason in REFUSALS if reason not in {"invalid", "refused"}])
def test_an_exception_comes_out_as_it_went_in(kind: type[LogError]) -> None:
    assert type(_over_the_wire(kind("x"))) is kind


def test_what_belongs_to_an_exception_comes_with_it() -> None:
    gap = _over_the_wire(ProducerGapError("x", 17))
    assert isinstance(gap, ProducerGapError)
    assert gap.expected == 17
    changed = _over_the_wire(PartitionsChangedError("x", 5, [3, 4]))
    assert isinstance(changed, PartitionsChangedError)
    assert (changed.partition_count, changed.positions) == (5, [3, 4])
    missing = MissingLogError("x", first_revision=1, last_revision=8)
    missing.partition = 2
    gone = _over_the_wire(missing)
    assert isinstance(gone, MissingLogError)
    assert (gone.last_revision, gone.partition) == (8, 2)


def test_what_has_no_exception_keeps_its_reason() -> None:
    refused = refusal_of("x", 409, GatewayProblem(reason="written-by-a-program"))
    assert isinstance(refused, GatewayRefusedError)
    assert (refused.reason, refused.status_code) == ("written-by-a-program", 409)
    assert isinstance(refusal_of("x", 403, GatewayProblem(reason="not-allowed")), AccessDeniedError)
