"""Requests as a replica gets them from its ports: as columns where the ports make columns of them."""

from __future__ import annotations

from collections.abc import Sequence

from rsm_spark.core.commands import Command, CommandColumn, Query, QueryColumn, Request


def as_received(requests: Sequence[Request]) -> Sequence[Request]:
    """Return what `rsm_spark.transport.codec` would make of the message that holds these requests."""
    commands = [one for one in requests if type(one) is Command]
    queries = [one for one in requests if type(one) is Query]
    if not requests or [*commands, *queries] != list(requests):
        return requests
    if not commands:
        return QueryColumn([query.payload for query in queries])
    session, answered_up_to = commands[0].session, commands[0].answered_up_to
    if any((one.session, one.answered_up_to) != (session, answered_up_to) for one in commands):
        return requests
    payloads = [command.payload for command in commands] + [query.payload for query in queries]
    return CommandColumn(session, answered_up_to, [one.sequence for one in commands], payloads)
