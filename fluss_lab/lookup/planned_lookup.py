"""The common part of lookup functions over a table of a lab: their plan as text, the connection, the read point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec
import pyarrow as pa

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import InvalidRequestError
from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.lookup.lookup_interfaces import FunctionContext, LookupFunction
from fluss_lab.lookup.rows.point_changes import own_buckets
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.table_reader import TableReader
from fluss_lab.server.cluster import locate

_VERSION = 1
#: Between the parts of a table's identity.
_MADE = " made at "


class LookupPlan(msgspec.Struct, frozen=True):
    """What is looked up where, as JSON for tasks.

    Attributes:
        address: Of the cluster, without the token.
        client: Options of the connection.
        table: As planned; its columns stay so while the join runs.
        join_keys: Columns that rows are looked up by.
        columns: Columns wanted.
        options: See `fluss_lab.lookup.lookup_options`.
        point: The moment as text; None: each micro-batch has its own.
        tasks: Among how many tasks the input is distributed by the table's buckets; None: it is not.
        reason: Why rows are looked up this way, where that was chosen by size.
        folder: Of the lab: on its machine the server is found there, wherever it listens by then; None: `address` says it.
    """

    address: ServerAddress
    client: Mapping[str, str]
    table: TableInfo
    join_keys: list[str]
    columns: list[str]
    options: Mapping[str, str]
    point: str | None = None
    tasks: int | None = None
    reason: str = ""
    folder: str | None = None


class PlannedLookup(LookupFunction):
    """A lookup function over a table, at a read point.

    Args:
        plan: What is looked up.
        secret: The cluster's token.
        clock: Of what expires.
    """

    def __init__(self, plan: LookupPlan, secret: str = "", clock: Clock | None = None) -> None:
        self.plan = plan
        self._token = secret
        self._clock = clock or SystemClock()
        self._connection: Connection | None = None
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.plan.table.path} by {', '.join(self.plan.join_keys)}>"

    # -- as text -------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the plan, without the token."""
        return encode(self.plan, version=_VERSION).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the function of a plan. `use_secret` gives it the token."""
        return cls(decode(LookupPlan, text, "lookup function of a table", version=_VERSION))

    def secret(self) -> str:
        """Return the cluster's token."""
        return self._token

    def use_secret(self, text: str) -> None:
        """Take the cluster's token."""
        self._token = text

    def identity(self) -> str:
        """Return the table's id and when it was made: another one of its path has others."""
        return f"{self.plan.table.table_id}{_MADE}{self.plan.table.created_ms}"

    def present_point(self) -> str:
        """Return the read point of the plan; where it has none, the table as it is now.

        Raises:
            TableNotFoundError: The table was dropped, also when another one has its path now.
        """
        if self.plan.point is not None:
            return self.plan.point
        with self._connect() as connection:
            point = TableReader(connection, self.plan.table.path).read_point()
            check_table_id(point.path, self.plan.table.table_id, point.table_id)
            return point.to_json()

    # -- in tasks ------------------------------------------------------------------------------------------------------

    def counters(self) -> Mapping[str, int]:
        """Return what is counted since `open`."""
        return dict(self._counts)

    def close(self) -> None:
        """Close the connection. Twice is fine."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        return Connection(self._address, dict(self.plan.client))

    def _address(self) -> ServerAddress:
        """Return where the coordinator is now; the server of a lab on this machine may have another port since."""
        if self.plan.folder is not None and Path(self.plan.folder).is_dir():
            place = locate(Path(self.plan.folder))
            return ServerAddress.of(place.host, place.port, place.token, place.trust)
        return replace(self.plan.address, token=self._token)

    def _open_source(self, context: FunctionContext) -> tuple[TableSource, ReadPoint]:
        """Connect; return the table, and the point at which its rows are looked up.

        Raises:
            InvalidRequestError: There is no point, or it is one of another table.
            TableNotFoundError: The point is of a table of this path that was dropped since.
        """
        self.close()
        self._counts = {}
        text = context.point or self.plan.point
        if text is None:
            raise InvalidRequestError(
                f"lookup in {self.plan.table.path}: expected a read point, found none: a join has one, or one for each "
                "micro-batch from present_point"
            )
        point = ReadPoint.from_json(text)
        self._connection = self._connect()
        source = TableSource(self._connection, self.plan.table, None)
        source.check_table(point.path, point.table_id, point.created_ms, "read point")
        return source, point

    def _type_keys(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return keys as columns that may be null, as the table has them everywhere else here."""
        schema = rows_schema(self.plan.table, self.plan.join_keys)
        return pa.RecordBatch.from_arrays([keys.column(name) for name in schema.names], schema=schema)

    def _kept_identity(self, kind: str, context: FunctionContext) -> str:
        """Return what rows that are kept must be of to be used by this function."""
        plan, numbers = self.plan, self._numbers(context)
        owned = None if numbers is None else sorted(numbers)
        return encode([kind, str(plan.table.path), plan.table.table_id, plan.join_keys, plan.columns, owned]).decode()

    def _numbers(self, context: FunctionContext) -> frozenset[int] | None:
        """Return the numbers of the buckets that this task gets keys of; None: of all."""
        if self.plan.tasks is None:
            return None
        info = context.task_info
        if info.parallelism != self.plan.tasks:
            raise InvalidRequestError(
                f"lookup in {self.plan.table.path}: expected one of {self.plan.tasks} tasks, found one of {info.parallelism}"
            )
        return frozenset(BucketPartitioner.of(self.plan.table.descriptor).buckets_of(info.index, info.parallelism))

    def _buckets(self, context: FunctionContext, point: ReadPoint) -> list[PointBucket]:
        return own_buckets(point, self._numbers(context))


def is_same_table(kept: str, present: str) -> bool:
    """Return whether an identity that was kept is the present one. An older release kept a table's id alone."""
    return kept == present or present.startswith(f"{kept}{_MADE}")


def rows_schema(info: TableInfo, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of looked-up columns: all nullable."""
    return pa.schema([info.schema.arrow_schema.field(name).with_nullable(True) for name in columns])
