"""Files that are being sent in parts: what is known of each, and what their commands log. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rsm_spark.core.contents import FileContent
from rsm_spark.files.draft import Contents, FileDraft, Quotas
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import (
    PARTS_MAX,
    UPLOAD_MS,
    UPLOADS_BYTES_MAX,
    UPLOADS_MAX,
    check_large,
    check_owner,
    check_size,
)
from rsm_spark.files.paths import shown
from rsm_spark.files.records import (
    LEDGER_FREED,
    LEDGER_NAMED,
    NO_LEDGER,
    PART_ERASED,
    PART_WRITTEN,
    UPLOAD_ENDED,
    UPLOADED,
)
from rsm_spark.files.tree import FileSum, FileTree


class FileUpload(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file that is being sent: the columns of its row in `uploads`.

    Attributes:
        path: Where it comes to lie.
        owner: Who sends it.
        permission: Of the file.
        overwrite: It may replace a file.
        size: Bytes that have come.
        part_count: Parts that have come.
        since_ms: Logged time of the last one.
        ledger: In which the content is going to lie; `NO_LEDGER` = in parts.

    """

    path: str
    owner: str
    permission: int
    overwrite: bool
    size: int
    part_count: int
    since_ms: int
    ledger: int = NO_LEDGER


class FileUploads:
    """All that is being sent.

    Args:
        held: By number.

    Attributes:
        held: The same.

    """

    def __init__(self, held: Iterable[tuple[int, FileUpload]] = ()) -> None:
        self.held = dict(held)

    def check_room(self, owner: str, more: int) -> None:
        """Refuse what would be too much of all that is being sent, or of what one owner sends.

        Args:
            owner: Who sends.
            more: Bytes that come; 0 = a new upload.

        Raises:
            FileError: `FULL`.

        """
        in_state = [one for one in self.held.values() if one.ledger == NO_LEDGER]
        whole = sum(one.size for one in in_state)
        own = sum(one.size for one in in_state if one.owner == owner)
        is_many = not more and len(self.held) >= UPLOADS_MAX
        if is_many or whole + more > UPLOADS_BYTES_MAX or own + more > UPLOADS_BYTES_MAX // 2:
            raise FileError(FileFault.FULL, "too many files are being sent at once: send this one later")

    def overdue(self, now_ms: int, promoted_ms: int) -> int | None:
        """Return the number of one of which nothing has come for too long, or None."""
        due = (number for number, one in self.held.items() if _due_ms(one, promoted_ms) <= now_ms)
        return min(due, default=None)

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which one is overdue next, or None."""
        return min((_due_ms(one, promoted_ms) for one in self.held.values()), default=None)


def _due_ms(one: FileUpload, promoted_ms: int) -> int:
    return max(one.since_ms, promoted_ms) + UPLOAD_MS


class UploadDraft(FileDraft):
    """Draft of what one command logs, those of uploads too.

    Args:
        tree: See `FileDraft`.
        quotas: See `FileDraft`.
        contents: See `FileDraft`.
        uploads: All that is being sent; not changed.
        revision: See `FileDraft`.
        now_ms: See `FileDraft`.

    """

    def __init__(
        self, tree: FileTree, quotas: Quotas, contents: Contents, uploads: FileUploads, revision: int, now_ms: int
    ) -> None:
        super().__init__(tree, quotas, contents, revision, now_ms)
        self._uploads = uploads

    def begin_upload(self, path: str, owner: str, permission: int, *, overwrite: bool) -> int:
        """Begin to send a file; return the number of the upload."""
        self._free_place(path, overwrite=overwrite)  # Who is refused at the end need not send it.
        check_owner(owner, permission)
        self._uploads.check_room(owner, 0)
        number = self._next_number
        upload = FileUpload(path, owner, permission, overwrite, 0, 0, self._now_ms)
        self.records.append((UPLOADED, (number, *msgspec.structs.astuple(upload))))
        return number

    def write_upload(self, path: str, number: int, part: int, content: bytes) -> None:
        """Send a part."""
        upload = self._upload(path, number)
        if part != upload.part_count or not content or upload.ledger != NO_LEDGER:
            says = f"part {part} of {shown(path)}: part {upload.part_count} comes next, and has bytes"
            raise FileError(FileFault.INVALID, says)
        if part >= PARTS_MAX:
            says = f"{shown(path)} is sent in more than {PARTS_MAX} parts: send larger ones"
            raise FileError(FileFault.TOO_LARGE, says)
        check_size(path, content, upload.size)
        self._uploads.check_room(upload.owner, len(content))
        longer = msgspec.structs.replace(
            upload, size=upload.size + len(content), part_count=part + 1, since_ms=self._now_ms
        )
        self.records.append((PART_WRITTEN, (number, part, content)))
        self.records.append((UPLOADED, (number, *msgspec.structs.astuple(longer))))

    def end_upload(self, path: str, number: int) -> None:
        """Put the file at its path."""
        upload = self._upload(path, number)
        if upload.ledger != NO_LEDGER:
            raise FileError(FileFault.INVALID, f"the content of {shown(path)} is in a ledger: it has an end of its own")
        place = self._free_place(path, overwrite=upload.overwrite)
        self.records.append((UPLOAD_ENDED, (number,)))
        self._enter_file(place, upload.owner, upload.permission, upload.size, upload.part_count, number=number)

    def note_ledger(self, path: str, number: int, ledger: int) -> None:
        """Note in which ledger the content is going to lie; nothing has come yet."""
        upload = self._upload(path, number)
        if upload.part_count or ledger < 0 or upload.ledger not in (NO_LEDGER, ledger):
            raise FileError(FileFault.INVALID, f"{shown(path)} has some content, or another ledger, already")
        noted = msgspec.structs.replace(upload, ledger=ledger, since_ms=self._now_ms)
        self.records.append((UPLOADED, (number, *msgspec.structs.astuple(noted))))

    def note_progress(self, path: str, number: int, size: int) -> None:
        """Note how much is in the ledger; refuse early what will not be taken in the end."""
        upload = self._in_ledger(path, number)
        check_large(path, size)
        place = self._free_place(path, overwrite=upload.overwrite)
        self._check_room(place, FileSum(0, 0, size - (place.node.size if place.node else 0)))
        noted = msgspec.structs.replace(upload, size=max(size, upload.size), since_ms=self._now_ms)
        self.records.append((UPLOADED, (number, *msgspec.structs.astuple(noted))))

    def end_ledger(self, path: str, number: int, size: int, chunk_count: int, digest: bytes) -> None:
        """Put the file at its path, with what its ledger holds."""
        upload = self._in_ledger(path, number)
        check_large(path, size)
        content = FileContent(upload.ledger, size, chunk_count, digest)
        if not content.is_whole:
            raise FileError(FileFault.INVALID, f"{size} bytes in {chunk_count} chunks are no content of {shown(path)}")
        place = self._free_place(path, overwrite=upload.overwrite)
        self.records.append((UPLOAD_ENDED, (number,)))
        self.records.append((LEDGER_NAMED, (number, *msgspec.structs.astuple(content))))
        self._enter_file(place, upload.owner, upload.permission, size, 0, number=number)

    def drop_upload(self, path: str, number: int) -> bool:
        """Forget what was sent; return whether anything was."""
        if number not in self._uploads.held:
            return False
        self._forget(number, self._upload(path, number))
        return True

    def forget_overdue(self, promoted_ms: int) -> bool:
        """Forget one of which nothing has come for too long; return whether there was any."""
        number = self._uploads.overdue(self._now_ms, promoted_ms)
        if number is None:
            return False
        self._forget(number, self._uploads.held[number])
        return True

    def _forget(self, number: int, upload: FileUpload) -> None:
        self.records.append((UPLOAD_ENDED, (number,)))
        self.records.extend((PART_ERASED, (number, part)) for part in range(upload.part_count))
        if upload.ledger != NO_LEDGER:
            self.records.append((LEDGER_FREED, (upload.ledger, number, False)))

    def _in_ledger(self, path: str, number: int) -> FileUpload:
        upload = self._upload(path, number)
        if upload.ledger == NO_LEDGER:
            raise FileError(FileFault.INVALID, f"nothing is said of a ledger for {shown(path)}")
        return upload

    def _upload(self, path: str, number: int) -> FileUpload:
        upload = self._uploads.held.get(number)
        if upload is None or upload.path != path:
            raise FileError(
                FileFault.NOT_FOUND,
                f"nothing is being sent to {shown(path)} under that number: it was ended, or was silent for too long",
            )
        return upload
