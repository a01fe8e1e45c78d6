"""The errors that this package raises on purpose.

One class for each different reaction of a caller; a test compares this drawing with the code::

    FlussError
    ├── InvalidError                    fix the call
    │   ├── InvalidNameError
    │   ├── InvalidSchemaError
    │   ├── InvalidPropertyError
    │   ├── InvalidBucketsError
    │   ├── InvalidRecordError
    │   ├── InvalidFilterError
    │   ├── InvalidTimestampError
    │   ├── InvalidPartitionError
    │   ├── InvalidRequestError
    │   ├── DuplicateSequenceError
    │   ├── RecordTooLargeError
    │   └── UnsupportedError
    ├── NotFoundError                   create it, or use another
    │   ├── DatabaseNotFoundError
    │   ├── TableNotFoundError
    │   ├── PartitionNotFoundError
    │   ├── BucketNotFoundError
    │   ├── LakeSnapshotNotFoundError
    │   └── KvSnapshotNotFoundError
    ├── AlreadyExistsError              choose another name, or use the existing one
    │   ├── DatabaseExistsError
    │   ├── TableExistsError
    │   ├── PartitionExistsError
    │   └── LakeTableExistsError
    ├── DatabaseNotEmptyError           drop its tables, or cascade
    ├── UntieredRecordsError            tier them first, or discard them
    ├── OffsetOutOfRangeError           start from an offset that is still held
    ├── AuthenticationError             use the right token
    ├── UnavailableError                wait and retry
    │   ├── ServerUnavailableError
    │   ├── RequestTimeoutError
    │   ├── NotLeaderError
    │   ├── OutOfOrderSequenceError
    │   ├── ResourceExhaustedError
    │   └── TieringCancelledError
    ├── ConnectionClosedError           open the lab again
    ├── ConflictError                   plan again from the present state
    │   ├── FencedTieringEpochError
    │   ├── CommitConflictError
    │   ├── TieringInProgressError
    │   └── ForeignCommitError
    ├── CommitOutcomeUnknownError       check the outcome before acting
    ├── WriteInterruptedError           settle it, or abandon it
    │   └── WriteStoppedError
    ├── CorruptDataError                stop; the data on disk or on the wire is damaged
    │   └── LakeAheadError
    ├── StorageError                    the disk refused; free space or repair it
    ├── LabError                        the lab's folder cannot be used as asked
    │   ├── LabLockedError
    │   └── LabMovedError
    ├── JavaNotFoundError               install a Java
    ├── LakeNotConfiguredError          enable the lake for the table
    ├── NotebookError                   a notebook run failed; read its output
    └── InternalError                   a defect of fluss_lab
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol


class FlussError(Exception):
    """Root of all errors of fluss_lab. Its message has what, where, expected, found, and what to do."""

    #: Whether the same call may succeed later without being changed.
    retriable: ClassVar[bool] = False

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: one paragraph; asked again, as ``%tb`` does, every frame."""
        from fluss_lab.tracebacks import notebook_traceback

        return notebook_traceback(self)


class InvalidError(FlussError):
    """The call itself is wrong: fix it. Nothing was changed."""


class InvalidNameError(InvalidError):
    """A database, table or column name that breaks the naming rule, or is reserved."""


class InvalidSchemaError(InvalidError):
    """An invalid table definition: types, keys or columns."""


class InvalidPropertyError(InvalidError):
    """An unknown property, or a value that is not of the property's type or range."""


class InvalidBucketsError(InvalidError):
    """An invalid bucket count or bucket key."""


class InvalidRecordError(InvalidError):
    """Rows or keys that do not fit the table. Nothing of the call was written."""


class InvalidFilterError(InvalidError):
    """A filter that cannot be parsed or names an unknown column."""


class InvalidTimestampError(InvalidError):
    """A time that cannot be parsed, is negative, or is later than the servers' clock."""


class InvalidPartitionError(InvalidError):
    """An invalid partition value, or a partition of a table that has none."""


class InvalidRequestError(InvalidError):
    """A request that breaks the protocol or one of its limits."""


class DuplicateSequenceError(InvalidError):
    """The batch's sequence number is that of another batch, or of one too old to compare. Nothing was appended."""


class RecordTooLargeError(InvalidError):
    """A record, batch or request over the size limit."""


class UnsupportedError(InvalidError):
    """A valid request that this table or this version does not support. The message has the reason."""


class NotFoundError(FlussError):
    """Something with this name does not exist."""


class DatabaseNotFoundError(NotFoundError):
    """No database of that name."""


class TableNotFoundError(NotFoundError):
    """No table of that path or id."""


class PartitionNotFoundError(NotFoundError):
    """No partition of that name or id."""


class BucketNotFoundError(NotFoundError):
    """A bucket that the table or the server does not have."""


class LakeSnapshotNotFoundError(NotFoundError):
    """The table has no such lake snapshot, or was never tiered."""


class KvSnapshotNotFoundError(NotFoundError):
    """The bucket has no such key-value snapshot, or no longer: request the latest one."""


class AlreadyExistsError(FlussError):
    """Something with this name exists."""


class DatabaseExistsError(AlreadyExistsError):
    """A database of that name exists."""


class TableExistsError(AlreadyExistsError):
    """A table of that path exists."""


class PartitionExistsError(AlreadyExistsError):
    """A partition of that name exists."""


class LakeTableExistsError(AlreadyExistsError):
    """The lake has another table of that name: drop it there, or use another name."""


class DatabaseNotEmptyError(FlussError):
    """The database still has tables: drop them first, or drop with ``cascade=True``."""


class UntieredRecordsError(FlussError):
    """A drop would lose records that the lake does not hold: tier them first, or discard them. Nothing was dropped."""


class OffsetOutOfRangeError(FlussError):
    """An offset that is no longer available in cluster or lake, or not yet written.

    Attributes:
        earliest_ms: Of rows as of a moment that is too early: the first moment at which they are available, in epoch milliseconds;
            None where that is not known.
    """

    earliest_ms: int | None = None


class AuthenticationError(FlussError):
    """The token is missing or wrong, or the server's certificate is not trusted."""


class UnavailableError(FlussError):
    """The same call may succeed later."""

    retriable = True


class ServerUnavailableError(UnavailableError):
    """No server answers at the known address."""


class RequestTimeoutError(UnavailableError):
    """The server did not answer in time; whether it acted is not known."""


class NotLeaderError(UnavailableError):
    """The server does not lead the bucket; refresh the metadata."""


class OutOfOrderSequenceError(UnavailableError):
    """A batch arrived before its predecessor; resend the predecessor first."""


class ResourceExhaustedError(UnavailableError):
    """A limit on concurrent work is reached; retry after a while."""


class TieringCancelledError(UnavailableError):
    """A tiering round was cancelled before its commit: nothing of it is in the lake, and the next one does it all."""


class ConnectionClosedError(FlussError):
    """The lab, or the connection, was closed before the call or during it; what a call that was sent did is not known."""


class ConflictError(FlussError):
    """A concurrent change invalidated the plan of this call: plan it again."""


class FencedTieringEpochError(ConflictError):
    """Another tierer holds the table now; this round may not commit."""


class CommitConflictError(ConflictError):
    """The lake table has changed since the commit was planned. Nothing was committed."""


class TieringInProgressError(ConflictError):
    """A live tierer holds the table; wait for it."""


class ForeignCommitError(ConflictError):
    """Another program changed the rows of the lake table: inspect it, then adopt or roll back."""


class CommitOutcomeUnknownError(FlussError):
    """A commit was sent and its outcome is not known: check it before acting."""


class UnsettledWrite(Protocol):
    """The unsettled part of a `WriteInterruptedError`."""

    @property
    def acknowledged(self) -> Mapping[tuple[str | None, int], Any]:
        """Return the acknowledged part."""
        ...

    def settle(self) -> Any:
        """Finish the write."""
        ...

    def abandon(self) -> None:
        """Abandon the rest."""
        ...


class WriteInterruptedError(FlussError):
    """A write that is acknowledged, or may be written, only in part. The message says how much.

    Writing the same rows again may duplicate them; `settle` does not.
    """

    def __init__(self, message: str, unsettled: UnsettledWrite | None = None) -> None:
        super().__init__(message)
        self._unsettled = unsettled

    @property
    def acknowledged(self) -> Mapping[tuple[str | None, int], Any]:
        """Return the acknowledged part by (partition name or None, bucket): ``rows``, and ``offsets`` as ranges."""
        return {} if self._unsettled is None else self._unsettled.acknowledged

    def settle(self) -> Any:
        """Finish the write, each row exactly once, and return its `WriteResult`. May be called twice.

        The unacknowledged rest is resent with its writer id and sequence numbers, by which the servers recognise batches that
        they have already written.

        Raises:
            WriteInterruptedError: It was interrupted, or failed, again; settle that error.
            FlussError: The rest is refused.
        """
        return None if self._unsettled is None else self._unsettled.settle()

    def abandon(self) -> None:
        """Abandon the unacknowledged rest, and release its rows. Batches in flight may be written or not."""
        if self._unsettled is not None:
            self._unsettled.abandon()


class WriteStoppedError(WriteInterruptedError, KeyboardInterrupt):
    """A write that the user interrupted. It ends a cell, a notebook's run or a script like any `KeyboardInterrupt`."""


class CorruptDataError(FlussError):
    """Data that fail their checks. They are never served; the message has their location."""


class LakeAheadError(CorruptDataError):
    """The lake holds later records of a table than the cluster, whose folder is an older copy. Nothing more of it is tiered."""


class StorageError(FlussError):
    """The file system refused a write: full, read-only or failing. Reads go on."""


class LabError(FlussError):
    """The lab's folder cannot be used as asked."""


class LabLockedError(LabError):
    """Another server runs on the same folder."""


class LabMovedError(LabError):
    """The folder was moved since its lake was written; the lake's paths must be rewritten first."""


class JavaNotFoundError(FlussError):
    """No Java 17 or newer was found; the message has the places searched and what to install."""


class LakeNotConfiguredError(FlussError):
    """The table is not lake-enabled (``table.datalake.enabled``)."""


class NotebookError(FlussError):
    """A notebook run failed; its output notebook holds the error."""


class InternalError(FlussError):
    """A defect of fluss_lab: the message is for its developers."""


#: Wire codes: Apache Fluss's numbers (its ``Errors``) where it has the error, those of fluss_lab from 1000.
#: One class per code; a class without an entry of its own is sent as its nearest listed base.
ERROR_CODES: dict[int, type[FlussError]] = {
    -1: InternalError,
    1: ServerUnavailableError,
    3: CorruptDataError,
    4: DatabaseNotFoundError,
    5: DatabaseNotEmptyError,
    6: DatabaseExistsError,
    7: TableNotFoundError,
    8: TableExistsError,
    12: NotLeaderError,
    13: RecordTooLargeError,
    14: InvalidRecordError,
    15: InvalidSchemaError,
    16: InvalidNameError,
    19: OffsetOutOfRangeError,
    21: BucketNotFoundError,
    25: RequestTimeoutError,
    26: StorageError,
    31: OutOfOrderSequenceError,
    36: PartitionNotFoundError,
    38: InvalidTimestampError,
    39: InvalidPropertyError,
    40: LakeNotConfiguredError,
    41: KvSnapshotNotFoundError,
    42: PartitionExistsError,
    43: InvalidPartitionError,
    46: AuthenticationError,
    49: InvalidBucketsError,
    50: FencedTieringEpochError,
    53: LakeSnapshotNotFoundError,
    54: LakeTableExistsError,
    1000: InvalidRequestError,
    1001: UnsupportedError,
    1002: ResourceExhaustedError,
    1003: TieringInProgressError,
    1004: CommitConflictError,
    1005: ForeignCommitError,
    1006: CommitOutcomeUnknownError,
    1007: InvalidFilterError,
    1008: LabLockedError,
    1009: LabMovedError,
    1010: JavaNotFoundError,
    1011: NotebookError,
    1012: DuplicateSequenceError,
    1019: UntieredRecordsError,
    1020: InvalidError,
    1021: NotFoundError,
    1022: AlreadyExistsError,
    1023: UnavailableError,
    1024: ConflictError,
    1025: LabError,
    1026: FlussError,
    1027: TieringCancelledError,
    1028: ConnectionClosedError,
    1029: LakeAheadError,
}

_CODE_OF_CLASS: dict[type[FlussError], int] = {cls: code for code, cls in ERROR_CODES.items()}


def error_code(error: FlussError) -> int:
    """Return the wire code of an error: its own class's, else that of its nearest listed base."""
    for cls in type(error).__mro__:
        if (code := _CODE_OF_CLASS.get(cls)) is not None:
            return code
    return -1


def error_from_code(code: int, message: str) -> FlussError:
    """Return the error that a wire code stands for; an unknown code becomes an `InternalError`."""
    cls = ERROR_CODES.get(code)
    if cls is None:
        return InternalError(f"unknown error code {code}: {message}")
    return cls(message)
