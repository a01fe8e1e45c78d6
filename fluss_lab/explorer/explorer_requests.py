"""The requests of a view, and their bounds."""

from __future__ import annotations

from typing import Annotated, Final, Literal, cast

import msgspec

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.json_codec import known_type
from fluss_lab.model.values.casts import is_unicode

#: Rows of a page.
PAGE_ROWS_MAX: Final = 500
#: Columns of a page: those in view and some on each side.
PAGE_COLUMNS_MAX: Final = 120
#: Columns whose facts are asked at once.
FACT_COLUMNS_MAX: Final = 50
#: Characters of a record that is typed; larger ones are written in a cell.
RECORD_LENGTH_MAX: Final = 100_000
_ACTION_MAX: Final = 100
#: Of names and conditions; what is longer is no name, and no condition that a person typed.
_NAME_MAX: Final = 1_000
_WHERE_MAX: Final = 20_000


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a view asks.

    Attributes:
        slot: The place that the answer is for; a newer request of a slot replaces an older one.
        seq: The number of the request, given back with the answer.
        view: The view that asks, given back with the answer: a widget may be shown at several places, and each gets all answers.
    """

    slot: str
    seq: int
    view: str = ""

    @property
    def writes(self) -> bool:
        """Whether it changes something: refused where nothing may be changed."""
        return False

    @property
    def click(self) -> str | None:
        """The name of what is done once, however often it is asked; None: it may be answered anew."""
        return None


class LeaveRequest(Request, frozen=True, tag="leave"):
    """The view is gone: nothing of it is wanted now."""


class TreeRequest(Request, frozen=True, tag="tree"):
    """Databases, tables and servers."""


class JobsRequest(Request, frozen=True, kw_only=True, tag="jobs"):
    """The jobs of the lab and their runs, or something done about one.

    Attributes:
        op: ``show``; ``log`` of a run; ``start``, ``pause``, ``resume`` a job; ``cancel``, ``rerun`` a run.
        name: The job's name, or the run's id; to show: only the runs of this job.
    """

    op: Literal["show", "log", "start", "pause", "resume", "cancel", "rerun"] = "show"
    name: str | None = None

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.op not in {"show", "log"}

    @property
    def click(self) -> str | None:
        """Return a name for what is done; None for what is shown."""
        return f"{self.view} {self.seq}" if self.writes else None


class HealthRequest(Request, frozen=True, kw_only=True, tag="health"):
    """Servers, room and findings.

    Attributes:
        age_s: How old what is costly may be: the room on the disks, and what the doctor finds.
    """

    age_s: int = 300


class TableRequest(Request, frozen=True, kw_only=True):
    """Something of one table.

    Attributes:
        table: Its path.
        table_id: Its id as text, where the view knows it: another table of the path is not shown in its place.
    """

    table: str
    table_id: str | None = None


class HeadRequest(TableRequest, frozen=True, tag="head"):
    """How a table is now."""


class SchemaRequest(TableRequest, frozen=True, tag="schema"):
    """Its columns and properties."""


class BucketsRequest(TableRequest, frozen=True, tag="buckets"):
    """Where the records of each bucket are."""


class BucketRequest(TableRequest, frozen=True, kw_only=True, tag="bucket"):
    """The Python for the records of one bucket that the lake does not hold.

    Attributes:
        partition: Name of its partition; None without partitions.
        bucket: Its number.
        start: Offset of the first of them, as text.
    """

    partition: str | None
    bucket: int
    start: str


class ChangesRequest(TableRequest, frozen=True, kw_only=True, tag="changes"):
    """Records of the changelog.

    Attributes:
        start: ``earliest``, ``newest``, ``time`` or ``offset``.
        value: The time as it was typed, or the offset.
        partition: With an offset, the name of the partition.
        bucket: With an offset, the bucket.
        window: What is shown already, to go on from it.
        older: Whether to go on before it, else after it.
        net: Whether only what has changed in effect is wanted.
    """

    start: Literal["earliest", "newest", "time", "offset"] = "newest"
    value: str = ""
    partition: str | None = None
    bucket: int | None = None
    window: str | None = None
    older: bool = True
    net: bool = False


class ChangeRequest(TableRequest, frozen=True, kw_only=True, tag="change"):
    """A record of the changelog, or the two of one update, with whole values.

    Attributes:
        partition: Name of its partition; None without partitions.
        bucket: Its bucket.
        offsets: Theirs, as text.
    """

    partition: str | None
    bucket: int
    offsets: Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)]


class TailRequest(TableRequest, frozen=True, kw_only=True, tag="tail"):
    """The records that come from now on. Answered again and again, until another request of the slot.

    Attributes:
        op: ``start``; ``resume`` and ``pause``, also to say that the view is still there; ``stop``.
    """

    op: Literal["start", "pause", "resume", "stop"]


class SnapshotsRequest(TableRequest, frozen=True, tag="snapshots"):
    """The snapshots of the lake, to choose a moment by."""


class RowsRequest(TableRequest, frozen=True, kw_only=True):
    """Something of a grid of rows.

    Attributes:
        where: The condition; empty: none.
        as_of: A time, or a snapshot's id, as text; None: now.
        point: The read point of the grid, as an answer named it; None: a new one.
    """

    where: str = ""
    as_of: str | None = None
    point: str | None = None


class PageRequest(RowsRequest, frozen=True, kw_only=True, tag="page"):
    """Some rows of a grid.

    Attributes:
        first: Number of the first row.
        count: How many.
        columns: Which, in this order; None: the first ones.
        shown: The columns that the person has chosen; None: all. For the Python lines.
    """

    first: int = 0
    count: int = 200
    columns: list[str] | None = None
    shown: list[str] | None = None


class CountRequest(RowsRequest, frozen=True, tag="count"):
    """How many rows a grid has."""


class FactsRequest(RowsRequest, frozen=True, kw_only=True, tag="facts"):
    """What columns hold: nulls, and how values are spread."""

    columns: list[str]


class RowRequest(RowsRequest, frozen=True, kw_only=True, tag="row"):
    """One row: all its values, and where it came from.

    Attributes:
        partition: Name of its partition; None without partitions.
        bucket: Its bucket.
        offset: Its offset, as text.
    """

    partition: str | None
    bucket: int
    offset: str


class LakeRequest(TableRequest, frozen=True, kw_only=True, tag="lake"):
    """The snapshots of the lake, and how many there were.

    Attributes:
        before: Those before the snapshot of this id; None: the newest.
    """

    before: str | None = None


class LakePartRequest(TableRequest, frozen=True, kw_only=True, tag="lake_part"):
    """What a snapshot of the lake has.

    Attributes:
        part: Of what kind.
        snapshot: Its id, as text.
    """

    part: Literal["files", "manifests", "partitions", "schemas", "refs"]
    snapshot: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}$")]


class DiffRequest(TableRequest, frozen=True, kw_only=True, tag="diff"):
    """What changed between two moments. Answered with how far it is, again and again, then with the counts.

    Attributes:
        op: ``run``; ``stop`` gives up the one under way.
        before: A time as it was typed, or the id of a lake snapshot.
        after: The same; empty: now.
    """

    op: Literal["run", "stop"]
    before: str = ""
    after: str = ""


class DiffRowsRequest(TableRequest, frozen=True, kw_only=True, tag="diff_rows"):
    """Some rows of a difference.

    Attributes:
        diff: Its name, from the answer with the counts.
        change: Which rows.
        first: Number of the first.
    """

    diff: str
    change: Literal["added", "removed", "changed"]
    first: Annotated[int, msgspec.Meta(ge=0)] = 0


class TieringRequest(TableRequest, frozen=True, tag="tiering"):
    """How far the lake is: state, lag over time, rounds, what went wrong."""


class FormRequest(TableRequest, frozen=True, tag="form"):
    """What a record of the table has, to be typed."""


class FollowRequest(TableRequest, frozen=True, tag="follow"):
    """How far the round or compaction is that was begun from here. Answered again and again, until its end."""


class ActionRequest(TableRequest, frozen=True, kw_only=True):
    """Something that a person does. It is never given up, and done once, however often it is asked.

    Attributes:
        action: Another text for each click.
    """

    action: str

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return True

    @property
    def is_once(self) -> bool:
        """Return whether it must not be done again."""
        return True

    @property
    def click(self) -> str | None:
        """Return the name of the action, where it must not be done again."""
        return self.action if self.is_once else None


class RoundRequest(ActionRequest, frozen=True, kw_only=True, tag="round"):
    """A tiering round by hand.

    Attributes:
        op: ``start``, or ``cancel`` of the one that was begun from here.
    """

    op: Literal["start", "cancel"]


class CompactRequest(ActionRequest, frozen=True, tag="compact"):
    """A compaction of what the lake holds."""


class WriteRequest(ActionRequest, frozen=True, kw_only=True, tag="write"):
    """A record that is written, or the key of one that is deleted.

    Attributes:
        mode: ``append``, ``upsert`` or ``delete``.
        values: Texts by column as they were typed; None, and a column that is left out: null.
        columns: Of an upsert: only these and the key, the others keep their values; None: all.
        check: Whether nothing is written, only said what is wrong and what the row has now.
    """

    mode: Literal["append", "upsert", "delete"]
    values: dict[str, str | None]
    columns: list[str] | None = None
    check: bool = False

    @property
    def is_once(self) -> bool:
        """Return whether it must not be done again: a check may."""
        return not self.check


AnyRequest = (
    LeaveRequest
    | TreeRequest
    | JobsRequest
    | HealthRequest
    | HeadRequest
    | SchemaRequest
    | BucketsRequest
    | BucketRequest
    | ChangesRequest
    | ChangeRequest
    | TailRequest
    | SnapshotsRequest
    | PageRequest
    | CountRequest
    | FactsRequest
    | RowRequest
    | LakeRequest
    | LakePartRequest
    | DiffRequest
    | DiffRowsRequest
    | TieringRequest
    | FormRequest
    | FollowRequest
    | RoundRequest
    | CompactRequest
    | WriteRequest
)


def parse_request(content: object) -> AnyRequest:
    """Return a message of a view as a request.

    Raises:
        InvalidRequestError: It is none, or asks for more than a screen needs.
    """
    try:
        request: AnyRequest = msgspec.convert(content, type=known_type(AnyRequest))
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"explorer: not a request of its view: {error}") from None
    sent_back = content
    if isinstance(request, WriteRequest):
        # Half of a character in a value is an error of its field, which escapes it.
        sent_back = {**cast("dict[str, object]", content), "values": [*request.values]}
    if not _is_text(sent_back):
        raise InvalidRequestError("explorer: expected text, found half of a character (one surrogate of a pair)")
    if len(request.slot) > _NAME_MAX or len(request.view) > _NAME_MAX:
        raise InvalidRequestError(f"explorer: expected a slot and a view of at most {_NAME_MAX} characters")
    if isinstance(request, JobsRequest) and request.name is not None and len(request.name) > _NAME_MAX:
        raise InvalidRequestError(f"jobs: expected a name of at most {_NAME_MAX} characters")
    if isinstance(request, RowsRequest) and len(request.where) > _WHERE_MAX:
        raise InvalidRequestError(f"where: expected at most {_WHERE_MAX:,} characters, found {len(request.where):,}")
    if isinstance(request, PageRequest):
        _check_page(request)
    if isinstance(request, FactsRequest) and len(request.columns) > FACT_COLUMNS_MAX:
        raise InvalidRequestError(f"facts: expected at most {FACT_COLUMNS_MAX} columns, found {len(request.columns)}")
    if isinstance(request, ActionRequest) and not 0 < len(request.action) <= _ACTION_MAX:
        raise InvalidRequestError(f"explorer: expected an action's name of 1 to {_ACTION_MAX} characters")
    if isinstance(request, WriteRequest):
        _check_write(request)
    return request


def _is_text(content: object) -> bool:
    """Return whether all texts of a request can be sent back: an answer that names one that cannot never arrives."""
    if isinstance(content, dict):
        return all(_is_text(each) for item in content.items() for each in item)
    if isinstance(content, list):
        return all(map(_is_text, content))
    return not isinstance(content, str) or is_unicode(content)


def _check_write(request: WriteRequest) -> None:
    length = sum(len(text or "") for text in request.values.values()) + len(request.values)
    if length > RECORD_LENGTH_MAX:
        raise InvalidRequestError(f"write: expected at most {RECORD_LENGTH_MAX:,} characters typed, found {length:,}")


def _check_page(request: PageRequest) -> None:
    if request.first < 0 or not 0 <= request.count <= PAGE_ROWS_MAX:
        raise InvalidRequestError(
            f"page: expected a first row of at least 0 and at most {PAGE_ROWS_MAX} rows, "
            f"found {request.first} and {request.count}"
        )
    if request.columns is not None and len(request.columns) > PAGE_COLUMNS_MAX:
        raise InvalidRequestError(f"page: expected at most {PAGE_COLUMNS_MAX} columns, found {len(request.columns)}")


def kind_of(request: AnyRequest) -> str:
    """Return the name of a request's kind, which its answers have too."""
    return str(type(request).__struct_config__.tag)
