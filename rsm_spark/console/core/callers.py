"""Part of a cluster that a caller sees, who may read some logs and not the whole cluster. Pure.

What such a caller gets is named here, part by part: whatever is added to the view belongs to those who see all, until
somebody says otherwise.
"""

from __future__ import annotations

import msgspec

from ledger.rights.principal import Principal
from ledger.rights.table import Right, may
from rsm_spark.console.core.view import ConsoleView, ConsoleWarning

UNSEEN = "the cluster cannot be looked at"
"""Words for why a view is old, to who is not to know more: the reason may name what belongs to others."""


WARNINGS_MAX = 100
"""Warnings that a caller is shown, the worst first, of those that are for it."""


def sees_all(principal: Principal) -> bool:
    """Return whether a caller has the views of the whole cluster."""
    return may(principal, Right.CLUSTER_READ)


def sees_log(principal: Principal, log: str) -> bool:
    """Return whether a caller may know that a log is there."""
    return sees_all(principal) or (may(principal, Right.STATE_READ) and principal.may_log(log))


def own_view(view: ConsoleView, principal: Principal) -> ConsoleView:
    """Return what a caller may see of a view."""
    if sees_all(principal):
        shown = view.warnings[:WARNINGS_MAX]
        return view if len(shown) == len(view.warnings) else msgspec.structs.replace(view, warnings=shown)
    logs = tuple(one for one in view.logs if sees_log(principal, one.log))
    warnings = tuple(one for one in view.warnings if one.log and sees_log(principal, one.log))
    if view.problem:
        since_ms = next((one.since_ms for one in view.warnings if one.about == "cluster"), view.at_ms)
        said = ConsoleWarning("bad", "cluster", UNSEEN, "what is shown was seen before", "", "logs", since_ms)
        warnings = (said, *warnings)
    return ConsoleView(
        at_ms=view.at_ms,
        problem=UNSEEN if view.problem else "",
        logs=logs,
        log_count=len(logs),
        findings=tuple(one for one in view.findings if one.log and sees_log(principal, one.log)),
        warnings=warnings[:WARNINGS_MAX],
    )


def records_fault(principal: Principal) -> str:
    """Return why a caller may not read the records of a log that it sees; "" = nothing that is known here says so.

    Records are of all keys and of all tables.
    """
    if sees_all(principal):
        return ""
    if principal.has_table_bounds:
        return f"{principal} has the right to some SQL tables, not to a log's records"
    return f"{principal} has a prefix of keys, and not the right to a log's records" if principal.prefix else ""
