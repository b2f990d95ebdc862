"""Pages about a cluster, of any process that can ask its metadata: those of BookKeeper's HTTP API, with its answers.

What differs: numbers are numbers where BookKeeper writes them as text, a password is never told, a wrong method is 405,
what is not there is 404, and a body that cannot be used is 400. A bookie is taken out only if it is known and does not
serve, and one request takes out all bookies that it names, where BookKeeper takes the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from ledger.core.metadata import LedgerMetadata
from ledger.decoding import json_decoder
from ledger.errors import BookieUnavailableError, NoSuchLedgerError, UsageError
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute, json_page, text_page
from ledger.replication.app import AutoRecovery
from ledger.replication.election import AuditorElection
from ledger.replication.marks import MarkStore
from ledger.replication.removals import REMOVALS_MAX
from ledger.rights.table import Right
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore

_PAGE_LEDGERS: Final = 100
_LISTED_MAX: Final = 100_000
_BookieId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\Z")]


class _DelayBody(msgspec.Struct):
    delay_seconds: int


class _DecommissionBody(msgspec.Struct):
    bookie_src: _BookieId
    delete_cookie: bool = False


class _RecoverBody(msgspec.Struct):
    bookie_src: Annotated[list[_BookieId], msgspec.Meta(min_length=1, max_length=REMOVALS_MAX)]
    bookie_dest: list[str] = []
    delete_cookie: bool = False


class ClusterPages:
    """See the module.

    Args:
        ledgers: Metadata of the cluster.
        recovery: Returns auto-recovery of this process; None = there is none, or not yet.

    """

    def __init__(self, ledgers: LedgerStore, recovery: Callable[[], AutoRecovery | None]) -> None:
        self._ledgers = ledgers
        self._marks = MarkStore(ledgers.store, ledgers.root, "")
        self._recovery = recovery

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is answered where."""

        def read(answer: Any) -> ProbeRoute:
            return ProbeRoute(answer, Right.CLUSTER_READ, is_slow=True)

        def change(answer: Any) -> ProbeRoute:
            return ProbeRoute(answer, Right.GOVERN, is_change=True, is_slow=True)

        return {
            "GET /api/v1/bookie/list_bookies": read(self._list_bookies),
            "GET /api/v1/bookie/cluster_info": read(self._cluster_info),
            "GET /api/v1/ledger/list": read(self._list_ledgers),
            "GET /api/v1/ledger/metadata": read(self._metadata),
            "GET /api/v1/autorecovery/list_under_replicated_ledger": read(self._under_replicated),
            "GET /api/v1/autorecovery/who_is_auditor": read(self._auditor),
            "GET /api/v1/autorecovery/lost_bookie_recovery_delay": read(self._delay),
            "PUT /api/v1/autorecovery/lost_bookie_recovery_delay": change(self._set_delay),
            "PUT /api/v1/autorecovery/trigger_audit": change(self._trigger_audit),
            "PUT /api/v1/autorecovery/decommission": change(self._decommission),
            "PUT /api/v1/autorecovery/bookie": change(self._recover),
        }

    # -- bookies -------------------------------------------------------------------------------------------

    async def _list_bookies(self, request: ProbeRequest) -> ProbePage:
        is_read_only = request.query.get("type") == "ro"
        ledgers = self._ledgers
        found = await (ledgers.read_only_bookies() if is_read_only else ledgers.writable_bookies())
        if request.query.get("print_hostnames") != "true":
            return json_page(dict.fromkeys(found))
        return json_page({bookie_id: await self._host(bookie_id) for bookie_id in found})

    async def _host(self, bookie_id: str) -> str | None:
        try:
            return (await self._ledgers.bookie_address(bookie_id))[0]
        except BookieUnavailableError:  # It has just left.
            return None

    async def _cluster_info(self, _request: ProbeRequest) -> ProbePage:
        ledgers, marks = self._ledgers, self._marks
        writable, read_only = await ledgers.writable_bookies(), await ledgers.read_only_bookies()
        known = {*await ledgers.store.children(paths.cookie_path(ledgers.root)), *writable, *read_only}
        auditor = await AuditorElection(marks).leader()
        return json_page(
            {
                "auditorElected": auditor is not None,
                "auditorId": auditor or "",
                "clusterUnderReplicated": bool(await marks.marked(limit=1)),
                "ledgerReplicationEnabled": await marks.is_enabled(),
                "totalBookiesCount": len(known),
                "writableBookiesCount": len(writable),
                "readonlyBookiesCount": len(read_only),
                "unavailableBookiesCount": len(known) - len(writable) - len(read_only),
            }
        )

    # -- ledgers -------------------------------------------------------------------------------------------

    async def _list_ledgers(self, request: ProbeRequest) -> ProbePage:
        ids = sorted(await self._ledgers.list())
        if request.query.get("print_metadata") != "true":
            return json_page({str(ledger_id): None for ledger_id in ids[:_LISTED_MAX]})
        page = request.query.get("page", "1")
        if not page.isascii() or not page.isdigit() or not int(page):
            return text_page(f"page={page}: expected a number from 1 on; a page has {_PAGE_LEDGERS} ledgers", 400)
        part = ids[(int(page) - 1) * _PAGE_LEDGERS : int(page) * _PAGE_LEDGERS]
        found = await asyncio.gather(*[self._described(ledger_id) for ledger_id in part])
        return json_page({str(one["ledgerId"]): one for one in found if one is not None})

    async def _metadata(self, request: ProbeRequest) -> ProbePage:
        wanted = request.query.get("ledger_id", "")
        if not wanted.isascii() or not wanted.isdigit():
            return text_page("say which ledger: ?ledger_id=NUMBER", 400)
        found = await self._described(int(wanted))
        return text_page(f"there is no ledger {wanted}", 404) if found is None else json_page({wanted: found})

    async def _described(self, ledger_id: int) -> dict[str, Any] | None:
        try:
            metadata = (await self._ledgers.read(ledger_id))[0]
        except NoSuchLedgerError:
            return None
        return _described(ledger_id, metadata)

    # -- auto-recovery -------------------------------------------------------------------------------------

    async def _under_replicated(self, request: ProbeRequest) -> ProbePage:
        query = request.query
        found: dict[int, tuple[str, ...]] = {}
        for ledger_id in await self._marks.marked(limit=_LISTED_MAX):
            mark = await self._marks.read(ledger_id)
            if mark is not None:
                found[ledger_id] = mark[0].bookie_ids
        for name, is_wanted in (("missingreplica", True), ("excludingmissingreplica", False)):
            if name in query:
                found = {one: ids for one, ids in found.items() if (query[name] in ids) is is_wanted}
        if not found:
            auditor = await AuditorElection(self._marks).leader()
            words = "No under replicated ledgers found"
            return text_page(words if auditor else f"{words}, but nobody looks: there is no auditor", 404)
        if "printmissingreplica" in query:
            return json_page({str(ledger_id): list(ids) for ledger_id, ids in found.items()})
        return json_page(list(found))

    async def _auditor(self, _request: ProbeRequest) -> ProbePage:
        auditor = await AuditorElection(self._marks).leader()
        return text_page("No auditor elected", 404) if auditor is None else text_page(f"Auditor: {auditor}")

    async def _delay(self, _request: ProbeRequest) -> ProbePage:
        delay_s = await self._marks.known_recovery_delay_s()
        if delay_s is None:
            return text_page("no lostBookieRecoveryDelay is set: the auditor sets its own", 404)
        return text_page(f"lostBookieRecoveryDelay value: {delay_s}")

    async def _set_delay(self, request: ProbeRequest) -> ProbePage:
        try:
            wanted = json_decoder(_DelayBody).decode(request.body).delay_seconds
        except msgspec.DecodeError as error:
            return text_page(f'expected {{"delay_seconds": NUMBER}}: {error}', 400)
        if wanted < 0:
            return text_page(f"delay_seconds {wanted}: a delay is not negative", 400)
        await self._marks.set_recovery_delay_s(wanted)
        return text_page(f"Success set lostBookieRecoveryDelay to {wanted}")

    async def _trigger_audit(self, _request: ProbeRequest) -> ProbePage:
        recovery = self._recovery()
        if recovery is not None and recovery.look_now():
            return text_page("Success trigger audit.")
        auditor = await AuditorElection(self._marks).leader()
        return text_page(f"this process is not the auditor: ask {auditor or 'nobody: there is none'}", 404)

    async def _decommission(self, request: ProbeRequest) -> ProbePage:
        try:
            body = json_decoder(_DecommissionBody).decode(request.body)
        except msgspec.DecodeError as error:
            return text_page(f'expected {{"bookie_src": "ID", "delete_cookie": false}}: {error}', 400)
        refusal = await self._begin_removal([body.bookie_src], request, is_cookie_deleted=body.delete_cookie)
        return refusal or text_page(f"Success send decommission Bookie command {body.bookie_src}")

    async def _recover(self, request: ProbeRequest) -> ProbePage:
        try:
            body = json_decoder(_RecoverBody).decode(request.body)
        except msgspec.DecodeError as error:
            return text_page(f'expected {{"bookie_src": ["ID"], "delete_cookie": false}}: {error}', 400)
        if body.bookie_dest:
            return text_page(
                "bookie_dest is not obeyed: placement says which bookies get the copies; leave it out", 400
            )
        refusal = await self._begin_removal(body.bookie_src, request, is_cookie_deleted=body.delete_cookie)
        return refusal or text_page("Success send recovery request command.")

    async def _begin_removal(
        self, bookie_ids: list[str], request: ProbeRequest, *, is_cookie_deleted: bool
    ) -> ProbePage | None:
        """Begin to take bookies out; return why not, or None."""
        recovery = self._recovery()
        if recovery is None:
            return text_page("auto-recovery does not run in this process: ask one in which it does", 404)
        for bookie_id in bookie_ids:
            if not await recovery.removals.has_cookie(bookie_id):
                return text_page(f"there is no bookie {bookie_id}: rsm cluster cookies lists those that there are", 404)
        try:
            await recovery.removals.begin(bookie_ids, str(request.principal), is_cookie_deleted=is_cookie_deleted)
        except UsageError as error:
            return text_page(str(error), 409)
        return None


def _described(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """Return a ledger's metadata as BookKeeper shows them, without the password."""
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.quorum.ensemble_size,
        "writeQuorumSize": metadata.quorum.write_quorum,
        "ackQuorumSize": metadata.quorum.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": metadata.created_ms,
        "digestType": metadata.digest_type.name,
        "customMetadata": dict(metadata.custom),
        "closed": metadata.is_closed,
        "allEnsembles": {
            str(segment.first_entry_id): [{"id": bookie_id} for bookie_id in segment.bookies]
            for segment in metadata.segments
        },
        "ctoken": metadata.token,
    }
