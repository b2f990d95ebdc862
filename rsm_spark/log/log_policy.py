"""Policies of plain logs, what each keeps and for how long: one node a log, read by whoever writes and trims it.

    <root>/policies/<log id>    JSON; without it the log keeps everything

The node stands under the log's id: a renamed log keeps it, a fork and a restored log have none, and keep everything.
Anybody who may write there changes it, by compare-and-set; the chain alone says what has gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, Watcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.trimming import FOREVER_MS, HOLD_BYTES, HOLD_MS, ConsumerHold, TrimRules
from rsm_spark.errors import ChainConflictError, CorruptLogError

_TRIES = 10


class LogPolicy(msgspec.Struct, frozen=True):
    """Policy of a plain log: what it keeps.

    Attributes:
        retention_ms: Ledgers whose last record is older go; None = none goes by its age.
        retention_bytes: What is older than so many bytes of newer closed ledgers goes; None = none goes by that.
        until_read: Ledgers that every consumer has read go, if there is one.
        truncated: Ledgers whose records are all at or below this position go.

    """

    retention_ms: int | None = None
    retention_bytes: int | None = None
    until_read: bool = False
    truncated: int = 0

    def rules(
        self,
        holds: tuple[ConsumerHold, ...],
        told_revision: int | None = None,
        *,
        hold_ms_max: int = HOLD_MS,
        hold_bytes_max: int = HOLD_BYTES,
    ) -> TrimRules:
        """Return the conditions for trimming; consumers hold what they have not read, within limits."""
        return TrimRules(
            FOREVER_MS if self.retention_ms is None else self.retention_ms,
            holds=holds,
            hold_ms_max=hold_ms_max,
            hold_bytes_max=hold_bytes_max,
            told_revision=told_revision,
            needs_snapshots=False,
            retention_bytes=self.retention_bytes,
            truncated_revision=self.truncated,
            until_read=self.until_read,
        )


def policy_path(log_id: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the node of a log's policy."""
    return f"{rsm_root}/policies/{log_id}"


def encode_policy(policy: LogPolicy) -> bytes:
    return msgspec.json.encode(policy)


async def read_policy(
    store: MetadataStore, log_id: str, rsm_root: str, *, watch: Watcher | None = None
) -> tuple[LogPolicy, int | None]:
    """Return the policy of a log and the version of its node; None = there is no node.

    Raises:
        CorruptLogError: The node does not say.
        MetadataError: The metadata store cannot be asked.

    """
    path = policy_path(log_id, rsm_root)
    await store.sync(path)
    if await store.exists(path, watch=watch) is None:
        return LogPolicy(), None
    try:
        value, version = await store.get(path)
        return json_decoder(LogPolicy).decode(value), version
    except NoNodeError:
        return LogPolicy(), None
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{path}: it does not say what the log keeps: {error}") from error


async def change_policy(
    store: MetadataStore, log_id: str, rsm_root: str, change: Callable[[LogPolicy], LogPolicy]
) -> LogPolicy:
    """Change what a log keeps; return what it keeps now.

    Raises:
        ChainConflictError: Others changed it each time.
        CorruptLogError: The node does not say what it keeps.
        MetadataError: The metadata store cannot be asked; it may be changed.

    """
    path = policy_path(log_id, rsm_root)
    for _ in range(_TRIES):
        before, version = await read_policy(store, log_id, rsm_root)
        after = change(before)
        if after == before:
            return after
        with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError):
            if version is None:
                await store.create(path, encode_policy(after), parents=True)
            else:
                await store.set(path, encode_policy(after), version)
            return after
    raise ChainConflictError(f"{path}: others changed what the log keeps {_TRIES} times meanwhile: try again")
