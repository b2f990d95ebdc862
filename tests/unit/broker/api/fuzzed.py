"""Requests made at random from the API's description. schemathesis takes a while to import: do so when it is needed."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from tests.unit.broker.api.thread_served import description

__all__ = ["fuzz"]

# What fits may still be refused, by what is there; headers and credentials are tested elsewhere.
_LEFT_OUT = {
    "positive_data_acceptance", "missing_required_header", "ignored_auth", "use_after_free",
    "ensure_resource_availability", "unsupported_method",
}  # fmt: skip
_CONFIG = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 404, 405, 409, 413, 414, 415, 431]}}}
)
_SLOW = {"wait_s"}
_TOLD = {"too-stale", "overloaded", "outcome-unknown"}
load_all_checks()
_CHECKS = [check for check in CHECKS.get_all() if check.__name__ not in _LEFT_OUT]


_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


@schemathesis.serializer("application/zip")
def _zipped(_context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _operations() -> dict[str, Any]:
    document = msgspec.json.decode(description())
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)  # Asked without tokens, where everybody is the administrator.
            operation["parameters"] = [one for one in operation["parameters"] if one["name"] not in _SLOW]
    schema = schemathesis.openapi.from_dict(document, config=_CONFIG)
    results: list[Any] = list(schema.get_all_operations())
    found = [result.ok() for result in results]
    return {f"{one.method.upper()} {one.path}": one for one in found}


_OPERATIONS = _operations()


def _check(case: Any, url: str) -> int:
    """Ask what a case says; the answer is to be one that is described, and never an error of our own."""
    response = case.call(base_url=url)
    # A revision that is not there yet, asked for: an answer, not an error.
    is_told = response.status_code in {503, 504} and response.json()["reason"] in _TOLD
    checks = [check for check in _CHECKS if not is_told or check.__name__ != "not_a_server_error"]
    case.validate_response(response, checks=checks)
    return int(response.status_code)


def fuzz(operation: str, url: str, examples: int) -> None:
    """Ask so many things that fit the description of an operation, and as many that do not."""
    statuses: set[int] = set()
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        strategy = _OPERATIONS[operation].as_strategy(generation_mode=mode)

        @settings(max_examples=examples, **_SETTINGS)
        @given(case=strategy)
        def run(case: Any) -> None:
            statuses.add(_check(case, url))

        # What takes nothing has nothing that could be wrong.
        with contextlib.suppress(Unsatisfiable):
            run()
    assert statuses
