"""Bugs to plant into writers, readers and recoveries: the simulation must find each (`test_ledger_bugs`)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ledger.client import answers
from ledger.client import recovery as client_recovery
from ledger.client.answers import read_answer
from ledger.core.entry import Miss, MissKind
from ledger.core.quorum import QuorumConfig
from ledger.core.recovery import Recovery, WriteBack
from ledger.core.writer import LedgerWriter
from ledger.ports import ANY_VERSION
from ledger.zookeeper.ledgers import LedgerStore

__all__ = [
    "ack_at_one",
    "close_over_anything",
    "confirm_what_is_pushed",
    "end_at_one_miss",
    "expose_lac_while_recovering",
    "skip_write_back",
    "take_silence_for_absent",
    "take_unknown_for_absent",
]


def ack_at_one(patch: pytest.MonkeyPatch) -> None:
    init = LedgerWriter.__init__

    def init_with_one(self: LedgerWriter, ledger_id: int, quorum: QuorumConfig, bookies: Any) -> None:
        init(self, ledger_id, QuorumConfig(quorum.ensemble_size, quorum.write_quorum, 1), bookies)

    patch.setattr(LedgerWriter, "__init__", init_with_one)


def end_at_one_miss(patch: pytest.MonkeyPatch) -> None:
    decide = Recovery._decide

    def decide_quickly(self: Recovery, entry_id: int) -> Any:
        quorum = self._quorum
        self._quorum = QuorumConfig(quorum.ensemble_size, quorum.write_quorum, quorum.write_quorum)
        try:
            return decide(self, entry_id)
        finally:
            self._quorum = quorum

    patch.setattr(Recovery, "_decide", decide_quickly)


def skip_write_back(patch: pytest.MonkeyPatch) -> None:
    send = client_recovery._Run.send

    def send_reads_only(self: Any, effect: Any) -> None:
        if isinstance(effect, WriteBack):
            self._answers.on_stored(effect.bookie_id, [(False, effect.entry.entry_id)])
        else:
            send(self, effect)

    patch.setattr(client_recovery._Run, "send", send_reads_only)


def close_over_anything(patch: pytest.MonkeyPatch) -> None:
    write = LedgerStore.write

    async def write_any_version(self: LedgerStore, ledger_id: int, metadata: Any, version: int) -> int:
        return await write(self, ledger_id, metadata, ANY_VERSION)

    patch.setattr(LedgerStore, "write", write_any_version)


def take_unknown_for_absent(patch: pytest.MonkeyPatch) -> None:
    class _AllAbsent(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return MissKind.ABSENT

    patch.setattr(answers, "_MISSES", _AllAbsent())


def take_silence_for_absent(patch: pytest.MonkeyPatch) -> None:
    """A bookie that does not answer counts as one that never had the entry."""

    def credulous(*arguments: Any) -> Any:
        answer: Any = read_answer(*arguments)
        is_unknown = isinstance(answer, Miss) and answer.kind is MissKind.UNKNOWN
        return Miss(MissKind.ABSENT, answer.reason) if is_unknown else answer

    patch.setattr(client_recovery, "read_answer", credulous)


def expose_lac_while_recovering(patch: pytest.MonkeyPatch) -> None:
    def write_back(self: Recovery, bookie_id: str, entry_id: int) -> WriteBack:
        return WriteBack(bookie_id, self._held[entry_id], entry_id)

    patch.setattr(Recovery, "_write_back", write_back)


def confirm_what_is_pushed(patch: pytest.MonkeyPatch) -> None:
    """A LAC in the header of an entry that is not confirmed yet."""
    append = LedgerWriter.append

    def append_with_own_id(self: LedgerWriter, payload_bytes: Any) -> Any:
        effects = append(self, payload_bytes)
        last = self._window.pushed
        return [msgspec.structs.replace(effects[0], last_add_confirmed=last), *effects[1:]]

    patch.setattr(LedgerWriter, "append", append_with_own_id)
