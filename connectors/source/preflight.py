"""Questions of a job before it starts Spark: whether its options can be, and whether ZooKeeper and its log are there.

Starting Spark takes many times as long as these answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.source.access import REACH_S, DriverAccess
from connectors.source.options import parse_options


def check_source(
    options: Mapping[str, str], *, is_stream: bool, needs_log: bool = True, reach_s: float = REACH_S
) -> None:
    """Refuse what a query of the source would refuse when Spark plans it.

    Args:
        options: Of the source; one log is named.
        is_stream: Whether the query will be one.
        needs_log: Whether the log must be there by now.
        reach_s: For a metadata server to take the first connection.

    Raises:
        OptionError: An option is wrong, or a file that it names cannot be read.
        NoSuchLogError: There is no such log; the message names the nearest ones.
        MetadataUnavailableError: Nobody listens at the address of the metadata store, or it does not answer.

    """
    parsed = parse_options(options, is_stream=is_stream)
    access = DriverAccess(parsed, reach_s=reach_s)
    try:
        access.password()
        access.log_keys()
        is_partitioned = access.layout(parsed.log) is not None
        if needs_log and not is_partitioned:
            access.chain(parsed.log)
    finally:
        access.close()
