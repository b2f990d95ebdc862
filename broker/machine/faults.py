"""Faults of what somebody sent: a sentence, or "" if there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

import msgspec

from broker.machine.limits import (
    AMOUNT_MAX,
    DURATION_MS_MAX,
    GROUP_MAX,
    NAME_BYTES_MAX,
    PRIORITY_MAX,
    RESOURCES_MAX,
    RETRY_BYTES_MAX,
    THREADS_MAX,
)
from broker.machine.policies import RetryPolicy, TenantPolicy, WorkerOffer
from ledger.decoding import json_decoder

_CONTROL = re.compile(r"[\x00-\x1f\x7f]").search
_SAFE_CHARS = NAME_BYTES_MAX // 4
_ENTRIES_MAX = 1_000
_RULES_MAX = 100
_FACTOR_MAX = 100.0
_WEIGHT_MAX = 1e6
_BYTES_MAX = 2**50


def name_fault(what: str, name: str, *, may_be_empty: bool = False) -> str:
    """Return what is wrong with a name."""
    if not name:
        return "" if may_be_empty else f"{what} is empty"
    if not name.isascii() or len(name) > _SAFE_CHARS:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return f"{what} {_short(name)} is no Unicode: it has half of a character in it"
        if size > NAME_BYTES_MAX:
            return f"{what} {_short(name)} has more than {NAME_BYTES_MAX} bytes of UTF-8"
    if _CONTROL(name):
        return f"{what} {_short(name)} has control characters in it"
    return ""


def text_fault(what: str, text: str, bytes_max: int) -> str:
    """Return what is wrong with a text for people."""
    return f"{what} has more than {bytes_max} bytes of UTF-8" if len(text.encode(errors="replace")) > bytes_max else ""


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:60] + "…")


def number_fault(what: str, number: int, low: int, high: int) -> str:
    """Return what is wrong with a number."""
    return "" if low <= number <= high else f"{what} is {number}: need {low:,} to {high:,}"


def resources_fault(resources: Mapping[str, int], *, low: int = 1) -> str:
    """Return what is wrong with amounts of resources."""
    if len(resources) > RESOURCES_MAX:
        return f"{len(resources)} resources are asked for: a task may ask for {RESOURCES_MAX}"
    for name, amount in resources.items():
        fault = resource_name_fault(name) or number_fault(f"amount of resource {_short(name)}", amount, low, AMOUNT_MAX)
        if fault:
            return fault
    return ""


def resource_name_fault(name: str) -> str:
    """Return what is wrong with the name of a resource."""
    if "," in name or "=" in name:
        return f"resource {_short(name)} has ',' or '=' in its name"
    return name_fault("resource", name)


def retry_fault(text: str) -> str:
    """Return what is wrong with the JSON of a retry policy."""
    if len(text) > RETRY_BYTES_MAX:
        return f"retry has more than {RETRY_BYTES_MAX} characters of JSON"
    try:
        policy = json_decoder(RetryPolicy).decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return f"retry is no JSON of a retry policy: {error}"
    return _retry_fault(policy)


def _retry_fault(policy: RetryPolicy) -> str:
    if len(policy.rules) > _RULES_MAX:
        return f"retry has {len(policy.rules)} rules: at most {_RULES_MAX}"
    fault = (
        number_fault("retry.backoff_ms", policy.backoff_ms, 0, DURATION_MS_MAX)
        or number_fault("retry.backoff_ms_max", policy.backoff_ms_max, 0, DURATION_MS_MAX)
        or _share_fault("retry.factor", policy.factor, 1.0, _FACTOR_MAX)
        or _share_fault("retry.jitter", policy.jitter, 0.0, 1.0)
    )
    for rule in policy.rules:
        fault = fault or name_fault("retry.rules.error", rule.error)
        if rule.max_attempts is not None:
            fault = fault or number_fault("retry.rules.max_attempts", rule.max_attempts, 0, AMOUNT_MAX)
        if rule.backoff_ms is not None:
            fault = fault or number_fault("retry.rules.backoff_ms", rule.backoff_ms, 0, DURATION_MS_MAX)
    return fault


def _share_fault(what: str, number: float, low: float, high: float) -> str:
    return "" if isfinite(number) and low <= number <= high else f"{what} is {number}: need {low} to {high}"


def policy_fault(policy: TenantPolicy) -> str:
    """Return what is wrong with a tenant's policy."""
    if not (isfinite(policy.weight) and 0 < policy.weight <= _WEIGHT_MAX):
        return f"weight is {policy.weight}: need a number above 0, at most {_WEIGHT_MAX:,.0f}"
    fault = (
        number_fault("running_max", policy.running_max, 0, AMOUNT_MAX)
        or number_fault("waiting_max", policy.waiting_max, 0, AMOUNT_MAX)
        or number_fault("group", policy.group, 1, GROUP_MAX)
        or number_fault("priority", policy.priority, -PRIORITY_MAX, PRIORITY_MAX)
        or number_fault("max_attempts", policy.max_attempts, 0, AMOUNT_MAX)
        or _retry_fault(policy.retry)
        or _counts_fault("running_max_by_type", policy.running_max_by_type)
    )
    fault = (
        fault
        or number_fault("bytes_max", policy.bytes_max, 0, _BYTES_MAX)
        or _names_fault("types", policy.types)
        or _names_fault("codes", policy.codes)
        or _names_fault("resources", policy.resources)
        or ("" if policy.groups is None else _groups_fault("groups", policy.groups, 1))
    )
    for what, length in (("retention_ms", policy.retention_ms), ("dead_retention_ms", policy.dead_retention_ms)):
        if length is not None:
            fault = fault or number_fault(what, length, 0, DURATION_MS_MAX)
    return fault


def _names_fault(what: str, names: Sequence[str] | None) -> str:
    if names is None:
        return ""
    if len(names) > _ENTRIES_MAX:
        return f"{what} has {len(names)} entries: at most {_ENTRIES_MAX}"
    return next((fault for name in names if (fault := name_fault(f"a name in {what}", name))), "")


def _counts_fault(what: str, counts: Mapping[str, int], high: int = AMOUNT_MAX) -> str:
    if len(counts) > _ENTRIES_MAX:
        return f"{what} has {len(counts)} entries: at most {_ENTRIES_MAX}"
    for name, count in counts.items():
        fault = name_fault(f"a name in {what}", name) or number_fault(f"{what}[{_short(name)}]", count, 0, high)
        if fault:
            return fault
    return ""


def offer_fault(offer: WorkerOffer) -> str:
    """Return what is wrong with a worker's offer."""
    fault = (
        number_fault("threads_max", offer.threads_max, 0, THREADS_MAX)
        or _counts_fault("threads_by_type", offer.threads_by_type)
        or _counts_fault("resources", offer.resources)
        or number_fault("tenant_share_percent", offer.tenant_share_percent, 0, 100)
        or _groups_fault("groups", offer.groups, 0)
        or _groups_fault("excluded_groups", offer.excluded_groups, 1)
        or _names_fault("tenants", offer.tenants)
    )
    if offer.any_type_threads is not None:
        fault = fault or number_fault("any_type_threads", offer.any_type_threads, 0, AMOUNT_MAX)
    return fault


def _groups_fault(what: str, groups: Iterable[int], low: int) -> str:
    named = list(groups)
    if len(named) > _ENTRIES_MAX or len(set(named)) != len(named):
        return f"{what}: at most {_ENTRIES_MAX} different groups"
    return next((fault for group in named if (fault := number_fault(what, group, low, GROUP_MAX))), "")
