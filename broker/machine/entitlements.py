"""Entitlements of a tenant that submits by itself: types, code pools, resources, groups.

Ordinary types, resources and groups may be named by everybody unless the policy lists others. What reaches further than
a task should, a type of `GUARDED_TYPES` or a code pool, may be named only by whom the policy allows it: see
`TenantPolicy`. Looked at when a task comes in, is changed or replayed; what waits already goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.machine.policies import GUARDED_TYPES, TenantPolicy


def _is_listed(name: str, listed: Sequence[str]) -> bool:
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in listed)


def _may_type(policy: TenantPolicy, task_type: str) -> bool:
    if task_type in GUARDED_TYPES:
        return policy.types is not None and task_type in policy.types
    return policy.types is None or _is_listed(task_type, policy.types)


def denial_of(
    tenant: str,
    policy: TenantPolicy,
    *,
    task_type: str = "",
    code: str = "",
    resources: Iterable[str] = (),
    group: int | None = None,
) -> str:
    """Return what a tenant may not name, and who may change that; "" = it may name all of it.

    Args:
        tenant: Its name, for words.
        policy: In force.
        task_type: "" = none is named.
        code: Code pool; "" = none is named.
        resources: Names.
        group: None = none is named.

    """
    what: tuple[str, str] | None = None
    if task_type and not _may_type(policy, task_type):
        what = f"tasks of type {task_type[:60]!r}", f"--allow-type {task_type[:60]}"
    elif code and not _is_listed(code, policy.codes):
        what = f"code pool {code[:60]!r}", f"--allow-code {code[:60]}"
    elif policy.groups is not None and group is not None and group != policy.group and group not in policy.groups:
        what = f"group {group}", f"--allow-group {group}"
    elif policy.resources is not None:
        name = next((one for one in resources if not _is_listed(one, policy.resources)), "")
        if name:
            what = f"resource {name[:60]!r}", f"--allow-resource {name[:60]}"
    if what is None:
        return ""
    return f"tenant {tenant!r} may not name {what[0]}: an operator allows it by rsm tenant set {tenant} {what[1]}"
