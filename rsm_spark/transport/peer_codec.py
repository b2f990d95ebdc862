"""The messages between replicas as what the kernel uses; the only place that knows their generated code."""

from __future__ import annotations

import msgspec

from rsm_spark.core.commands import Answer, AnswerStatus, Report, ReportDiverged, ReportVerified, ReportWithdrawn
from rsm_spark.core.freshness import LeaderClock
from rsm_spark.errors import CorruptSnapshotError, InvalidCommandError
from rsm_spark.runtime.peers import LogIndex, PeerSnapshots
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest, decode_manifest, encode_manifest
from rsm_spark.transport import peer_pb2
from rsm_spark.transport.parsing import parsed

PEER_SERVICE = "rsm.peer.v1.Peer"
LIST_METHOD = f"/{PEER_SERVICE}/List"
DOWNLOAD_METHOD = f"/{PEER_SERVICE}/Download"
REPORT_METHOD = f"/{PEER_SERVICE}/Report"
READ_INDEX_METHOD = f"/{PEER_SERVICE}/ReadIndex"
CHUNK_BYTES_MAX = 1024 * 1024


class WantedFile(msgspec.Struct, frozen=True):
    """Request of a Download.

    Attributes:
        log: Name of the log meant.
        revision: Of the snapshot.
        prefix_hash: Of the snapshot, hex.
        file: As its manifest names it.
        offset: First byte wanted.

    """

    log: str
    revision: int
    prefix_hash: str
    file: str
    offset: int


def encode_list(log: str) -> bytes:
    return peer_pb2.ListRequest(log=log).SerializeToString()


def decode_list(text: bytes) -> str:
    """Return the log that a List request means.

    Raises:
        InvalidCommandError: It is none.

    """
    return parsed(peer_pb2.ListRequest, text, InvalidCommandError).log


def encode_snapshots(
    replica_id: str,
    domain: str,
    manifests: list[SnapshotManifest],
    damaged: list[SnapshotDamage],
    protected: list[SnapshotManifest],
) -> bytes:
    """Return the answer to a List request."""
    return peer_pb2.ListAnswer(
        replica_id=replica_id,
        domain=domain,
        manifests=[encode_manifest(manifest) for manifest in manifests],
        damaged=[msgspec.json.encode(damage) for damage in damaged],
        protected=[manifest.revision for manifest in protected],
    ).SerializeToString()


def decode_snapshots(text: bytes, *, place: str) -> PeerSnapshots:
    """Read the answer to a List request; manifests that this version cannot read are told among the damaged.

    Raises:
        InvalidCommandError: It is none.

    """
    answer = parsed(peer_pb2.ListAnswer, text, InvalidCommandError)
    manifests: list[SnapshotManifest] = []
    damaged = [f"{one['place']}: {one['reason']}" for one in map(msgspec.json.decode, answer.damaged)]
    for manifest in answer.manifests:
        try:
            manifests.append(decode_manifest(manifest, place=place))
        except CorruptSnapshotError as error:
            damaged.append(str(error))
    return PeerSnapshots(answer.replica_id, answer.domain, tuple(manifests), tuple(damaged), tuple(answer.protected))


def encode_download(wanted: WantedFile) -> bytes:
    return peer_pb2.DownloadRequest(
        log=wanted.log,
        revision=wanted.revision,
        prefix_hash=wanted.prefix_hash,
        file=wanted.file,
        offset=wanted.offset,
    ).SerializeToString()


def decode_download(text: bytes) -> WantedFile:
    """Read a Download request.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(peer_pb2.DownloadRequest, text, InvalidCommandError)
    return WantedFile(message.log, message.revision, message.prefix_hash, message.file, message.offset)


def encode_chunk(content: bytes) -> bytes:
    """Return one message of a Download stream."""
    return peer_pb2.Chunk(content=content).SerializeToString()


def decode_chunk(text: bytes) -> bytes:
    """Return the bytes in one message of a Download stream.

    Raises:
        InvalidCommandError: It is none.

    """
    return parsed(peer_pb2.Chunk, text, InvalidCommandError).content


def encode_report(log: str, report: Report) -> bytes:
    message = peer_pb2.ReportRequest(log=log)
    if isinstance(report, ReportVerified):
        message.verified.CopyFrom(peer_pb2.Verified(**msgspec.structs.asdict(report)))
    elif isinstance(report, ReportWithdrawn):
        message.withdrawn.CopyFrom(peer_pb2.Withdrawn(**msgspec.structs.asdict(report)))
    else:
        message.diverged.CopyFrom(peer_pb2.Diverged(**msgspec.structs.asdict(report)))
    return message.SerializeToString()


def decode_report(text: bytes) -> tuple[str, Report]:
    """Return the log that a Report request means, and what it says.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(peer_pb2.ReportRequest, text, InvalidCommandError)
    match message.WhichOneof("report"):
        case "verified":
            said = message.verified
            report: Report = ReportVerified(
                said.place, said.domain, said.revision, said.digest, said.prefix_hash, said.row_count, said.by
            )
        case "withdrawn":
            report = ReportWithdrawn(message.withdrawn.place, message.withdrawn.by, message.withdrawn.reason)
        case "diverged":
            report = ReportDiverged(message.diverged.revision, message.diverged.digest, message.diverged.by)
        case _:
            raise InvalidCommandError("a report of a kind that this version does not know: upgrade this replica")
    return message.log, report


def encode_report_answer(answer: Answer) -> bytes:
    """Return the answer to a Report request."""
    return peer_pb2.ReportAnswer(
        status=int(answer.status), revision=answer.revision, payload=answer.payload
    ).SerializeToString()


def decode_report_answer(text: bytes) -> Answer:
    """Read the answer to a Report request; a status that this version does not know is OUTCOME_UNKNOWN.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(peer_pb2.ReportAnswer, text, InvalidCommandError)
    known = message.status in AnswerStatus._value2member_map_
    status = AnswerStatus(message.status) if known else AnswerStatus.OUTCOME_UNKNOWN
    return Answer(status, message.revision, message.payload)


def encode_read_index(log: str) -> bytes:
    return peer_pb2.ReadIndexRequest(log=log).SerializeToString()


def decode_read_index(text: bytes) -> str:
    """Return the log that a ReadIndex request means.

    Raises:
        InvalidCommandError: It is none.

    """
    return parsed(peer_pb2.ReadIndexRequest, text, InvalidCommandError).log


def encode_read_index_answer(index: LogIndex) -> bytes:
    """Return the answer to a ReadIndex request."""
    message = peer_pb2.ReadIndexAnswer(status=int(index.status), revision=index.revision)
    if index.clock is not None:
        message.clock.leader_epoch, message.clock.logged_ms = index.clock
    return message.SerializeToString()


def decode_read_index_answer(text: bytes) -> LogIndex:
    """Read the answer to a ReadIndex request; a status that this version does not know is NOT_LEADER.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(peer_pb2.ReadIndexAnswer, text, InvalidCommandError)
    known = message.status in AnswerStatus._value2member_map_
    clock = LeaderClock(message.clock.leader_epoch, message.clock.logged_ms) if message.HasField("clock") else None
    return LogIndex(AnswerStatus(message.status) if known else AnswerStatus.NOT_LEADER, message.revision, clock)
