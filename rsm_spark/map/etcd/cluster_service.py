"""etcd's services about the cluster itself: members, maintenance, and who is who."""

from __future__ import annotations

import grpc

from rsm_spark.map import commands as c
from rsm_spark.map import queries as q
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend, member_number
from rsm_spark.map.etcd.caller import EtcdCaller
from rsm_spark.map.etcd.etcd_pb2 import (
    CORRUPT,
    NO_ALARM,
    NOSPACE,
    AlarmMember,
    AlarmRequest,
    AlarmResponse,
    AlarmType,
    AuthenticateRequest,
    AuthenticateResponse,
    AuthStatusRequest,
    AuthStatusResponse,
    DefragmentRequest,
    DefragmentResponse,
    EtcdMember,
    HashKVRequest,
    HashKVResponse,
    HashRequest,
    HashResponse,
    MemberListRequest,
    MemberListResponse,
    StatusRequest,
    StatusResponse,
)
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.transport.guard import Guard

VERSION = "3.6.0"
"""Of etcd's API that is served: clients ask for it before they use what came late."""
_HASH_BITS = (1 << 32) - 1
_ALARMS: dict[int, c.AlarmKind] = {NOSPACE: "nospace", CORRUPT: "corrupt"}
_KINDS: dict[str, AlarmType] = {"nospace": NOSPACE, "corrupt": CORRUPT}


class EtcdClusterService:
    """See the module.

    Args:
        backend: The map.
        kv: Reads it.
        guard: Of the port.
        scheme: Of the addresses of members: "http" or "https".

    """

    def __init__(self, backend: EtcdBackend, kv: EtcdKvService, guard: Guard, scheme: str) -> None:
        self._backend = backend
        self._kv = kv
        self._guard = guard
        self._scheme = scheme

    async def member_list(self, request: MemberListRequest, _caller: EtcdCaller) -> MemberListResponse:
        """List the live replicas; those that serve etcd's API have an address.

        Raises:
            RsmError, LedgerError: Nobody can say.

        """
        if request.linearizable:
            await self._backend.linearizable()
        response = MemberListResponse(header=self._backend.header())
        for member in await self._backend.members():
            urls = [f"{self._scheme}://{member.etcd}"] if member.etcd else []
            number = member_number(member.replica_id)
            response.members.append(EtcdMember(id=number, name=member.replica_id, client_urls=urls))
        return response

    async def status(self, _request: StatusRequest, _caller: EtcdCaller) -> StatusResponse:
        """Say how this replica is."""
        backend, replica = self._backend, self._backend.replica
        leader = replica.leader
        used = replica.memory.gauge.look().used
        return StatusResponse(
            header=backend.header(),
            version=VERSION,
            dbSize=used,
            dbSizeInUse=used,
            leader=0 if leader is None else member_number(leader.replica_id),
            raftIndex=backend.revision,
            raftTerm=replica.leader_epoch,
            raftAppliedIndex=backend.revision,
            errors=[*replica.status().alarms, *map(in_words, backend.alarms)],
        )

    async def alarm(self, request: AlarmRequest, caller: EtcdCaller) -> AlarmResponse:
        """List, raise or end alarms. Memory that is nearly used up is listed too: it ends when its reason does.

        Raises:
            EtcdError: It is not for this caller, or there is no such alarm or action.
            RsmError: The leader does not answer.

        """
        caller.check_whole("alarms")
        if request.alarm not in _ALARMS and request.alarm != NO_ALARM:
            raise e.invalid(f"rsm: there is no alarm {request.alarm}")
        match request.action:
            case AlarmRequest.GET:
                alarms = await self._listed()
                alarms = [one for one in alarms if request.alarm in (NO_ALARM, one.alarm)]
            case AlarmRequest.ACTIVATE | AlarmRequest.DEACTIVATE:
                alarms = await self._set(request, caller)
            case _:
                raise e.invalid(f"rsm: there is no action {request.action} on alarms")
        return AlarmResponse(header=self._backend.header(), alarms=alarms)

    async def _listed(self) -> list[AlarmMember]:
        shown, _ = await self._backend.query(q.ListAlarms())
        # A leader of before version 5 of the map does not know the question: it has none.
        alarms = [_told(one) for one in shown.alarms] if isinstance(shown, q.AlarmsShown) else []
        own = AlarmMember(member_id=self._backend.header().member_id, alarm=NOSPACE)
        if self._backend.replica.memory.is_full and own not in alarms:
            alarms.append(own)
        return alarms

    async def _set(self, request: AlarmRequest, caller: EtcdCaller) -> list[AlarmMember]:
        """Raise or end an alarm; return it, or nothing if there is none that ends."""
        caller.check_administrator("to raise and end alarms")
        is_raised = request.action == AlarmRequest.ACTIVATE
        if request.alarm == NO_ALARM:
            return []
        member = int.from_bytes(request.member_id.to_bytes(8, "big"), "big", signed=True)
        command = c.SetAlarm(_ALARMS[request.alarm], member, is_raised)
        done = await self._backend.execute(command, caller.owner)
        assert isinstance(done, c.Written)
        await self._backend.applied(done.revision)
        return [AlarmMember(member_id=request.member_id, alarm=request.alarm)] if is_raised or done.revision else []

    async def defragment(self, _request: DefragmentRequest, _caller: EtcdCaller) -> DefragmentResponse:
        """Do nothing: there is nothing to defragment."""
        return DefragmentResponse(header=self._backend.header())

    async def hash(self, _request: HashRequest, caller: EtcdCaller) -> HashResponse:
        """Tell a hash of the whole state, the same on all replicas at one revision."""
        caller.check_whole("the hash of the state")
        replica = self._backend.replica
        number, revision = replica.digest & _HASH_BITS, replica.revision
        return HashResponse(header=self._backend.header(revision), hash=number)

    async def hash_kv(self, request: HashKVRequest, caller: EtcdCaller) -> HashKVResponse:
        """Tell a hash of all keys at a revision, the present one unless another is asked for.

        Raises:
            EtcdError: That revision is forgotten, compacted, or has not come yet.

        """
        caller.check_whole("the hash of the keys")
        revision = request.revision or self._backend.revision
        number = await self._kv.hash(revision, caller.owner)
        compacted = self._backend.compacted
        return HashKVResponse(
            header=self._backend.header(), hash=number, compact_revision=compacted, hash_revision=revision
        )

    # ---- who is who

    async def auth_status(self, _request: AuthStatusRequest, _caller: EtcdCaller) -> AuthStatusResponse:
        """Say whether a token is needed."""
        return AuthStatusResponse(header=self._backend.header(), enabled=not self._guard.is_open, authRevision=1)

    def authenticate(self, request: AuthenticateRequest) -> AuthenticateResponse:
        """Take a token as a password: what is sent from then on is that token.

        Raises:
            EtcdError: It is nobody's, or another's, or none is needed.

        """
        if self._guard.is_open:
            raise e.auth_not_enabled()
        principal = self._guard.principal_of(request.password.encode())
        if principal is None or request.name != principal.name:
            raise e.invalid(e.AUTH_FAILED)
        return AuthenticateResponse(header=self._backend.header(), token=request.password)


def _told(alarm: q.AlarmShown) -> AlarmMember:
    number = int.from_bytes(alarm.member.to_bytes(8, "big", signed=True), "big")
    return AlarmMember(member_id=number, alarm=_KINDS[alarm.kind])


def in_words(alarm: q.AlarmShown) -> str:
    """Return an alarm as etcd says it in the errors of a status."""
    told = _told(alarm)
    return f"memberID:{told.member_id} alarm:{AlarmType.Name(told.alarm)}"


def not_served(what: str) -> e.EtcdError:
    """Return the error of something that etcd has and this does not."""
    return e.EtcdError(grpc.StatusCode.UNIMPLEMENTED, f"rsm: {what}: not served here, see docs/etcd.md")
