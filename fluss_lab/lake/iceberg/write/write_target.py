"""The target of a round's files: all that tasks need to write them, as JSON, so that tasks send no requests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.typedef import Record

from fluss_lab.lake.format_interfaces import WriterInitContext
from fluss_lab.lake.iceberg.files.parquet_output import StatisticsPlan
from fluss_lab.lake.iceberg.table.layout import LakeLayout
from fluss_lab.lake.iceberg.table.type_mapping import arrow_schema, wide_field
from fluss_lab.model.config.lake_options import file_properties
from fluss_lab.model.json_codec import Forms, decode, encode, to_plain
from fluss_lab.model.names import partition_values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

VERSION: Final = 1
#: Targets that a process keeps, of those used last: some kB each, of every table that a worker writes.
_TARGETS_KEPT: Final = 64
#: Which of the table's properties the writing of data files goes by.
_WRITE_PREFIX: Final = "write."
#: File systems allow 255 bytes a name; a partition value may have more once it is quoted.
_NAME_BYTES_MAX: Final = 200
#: What Iceberg writes as JSON travels as that text.
TABLE_FORMS: Final[Forms] = {
    kind: (kind.model_dump_json, kind.model_validate_json) for kind in (Schema, PartitionSpec, NameMapping)
}


@dataclass(frozen=True)
class WriteTarget:
    """What writers of a lake table need, and all they need. Shared by the tasks of a process; it never changes.

    Attributes:
        location: The table's location.
        schema: The columns that are written, user's then system, as they are called in the lake now; what is within them
            as fluss_lab called it, since readers find it by its ids and Arrow casts it by its names. Those of a primary
            key are its identifier fields.
        spec: The partition spec.
        sort_order_id: Of ascending offsets; None when another engine replaced that order.
        io_properties: For file access.
        properties: The table's write properties.
    """

    location: str
    schema: Schema
    spec: PartitionSpec
    sort_order_id: int | None
    io_properties: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str]

    @staticmethod
    def of(layout: LakeLayout, lake: Table) -> WriteTarget:
        """Return the target of a lake table, by its layout as `checked_layout` returns it."""
        current = lake.schema()
        fields = [_lake_field(field, current) for field in layout.schema.fields]
        schema = Schema(*fields, identifier_field_ids=layout.schema.identifier_field_ids)
        properties = {key: value for key, value in lake.properties.items() if key.startswith(_WRITE_PREFIX)}
        io_properties = file_properties({key: str(value) for key, value in lake.io.properties.items()})
        return WriteTarget(
            lake.location(), schema, lake.spec(), _sort_order_id(layout, lake), io_properties, properties
        )

    def to_json(self) -> dict[str, Any]:
        """Return the target as JSON. Like `io_properties` it may hold credentials of the file system."""
        plain: dict[str, Any] = to_plain(self, version=VERSION, forms=TABLE_FORMS)
        return plain

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> WriteTarget:
        """Read the JSON of `to_json`; the same JSON gives the same target, with all that was derived of it.

        Raises:
            CorruptDataError: It is not of this release.
        """
        return _target(encode(value))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Return the columns as they are written: see `type_mapping.arrow_schema`."""
        return arrow_schema(self.schema)

    @cached_property
    def statistics_plan(self) -> StatisticsPlan:
        """Return which metrics files have."""
        return StatisticsPlan(
            compute_statistics_plan(self.schema, dict(self.properties)), parquet_path_to_id_mapping(self.schema)
        )

    def file_io(self) -> FileIO:
        """Return access to the table's files."""
        return load_file_io(dict(self.io_properties), self.location)

    def locations(self) -> LocationProvider:
        """Return what decides where files go."""
        return load_location_provider(self.location, dict(self.properties))

    def place(self, partition: str | None, bucket: int) -> BucketPartition:
        """Return the Iceberg partition of one bucket."""
        values = () if partition is None else partition_values(partition)
        return BucketPartition([], self.spec, self.schema, Record(*values, bucket))

    @property
    def offset_id(self) -> int:
        """Return the field id of the column ``__offset``."""
        return self.schema.fields[-2].field_id


@lru_cache(_TARGETS_KEPT)
def _target(data: bytes) -> WriteTarget:
    return decode(WriteTarget, data, "write target", version=VERSION, peer=True, forms=TABLE_FORMS)


@dataclass(frozen=True, slots=True)
class BucketTarget:
    """Where the files of one bucket go that one writer writes.

    Attributes:
        table: The table's.
        place: The bucket's Iceberg partition.
        bucket: Its number.
        what: The table and bucket, for messages.
        prefix: How the files' names begin: round, bucket, split; so that files of dead rounds are recognised.
    """

    table: WriteTarget
    place: BucketPartition
    bucket: int
    what: str
    prefix: str

    @staticmethod
    def of(
        table: WriteTarget, what: str, partition: str | None, bucket: int, round_id: str, split: str
    ) -> BucketTarget:
        """Return the target of a writer.

        Args:
            table: The table's target.
            what: The table, for messages.
            partition: Name of the bucket's partition, or None.
            bucket: Its number.
            round_id: Of the round; its characters that a file name should not have are replaced.
            split: Distinguishes the writer from the others of the round and bucket.
        """
        prefix = f"{re.sub(r'[^A-Za-z0-9_-]', '_', round_id)}-b{bucket:05d}-{split}"
        within = "" if partition is None else f", partition {partition}"
        return BucketTarget(table, table.place(partition, bucket), bucket, f"{what}{within}, bucket {bucket}", prefix)

    @staticmethod
    def of_split(context: WriterInitContext) -> BucketTarget:
        """Return where the files of a split go.

        Raises:
            CorruptDataError: The context is of another release.
        """
        return BucketTarget.of(
            WriteTarget.from_json(context.lake_table),
            f"table {context.table.path}",
            context.partition,
            context.bucket.bucket,
            context.round_id,
            f"s{context.split_index:05d}",
        )

    def location(self, name: str) -> str:
        """Return where a file of a name (unique to this writer, without prefix and ending) goes."""
        return self.table.locations().new_data_location(f"{self.prefix}-{name}.parquet", self.place)


@dataclass(frozen=True)
class BucketPartition(PartitionKey):
    """The partition of one bucket: its values, and its folder."""

    record: Record

    def to_path(self) -> str:
        """Return the folder, as Iceberg names it; names that no file system takes are cut and end in a hash."""
        parts = self.partition_spec.partition_to_path(self.record, self.schema).split("/")
        return "/".join(part if len(part) <= _NAME_BYTES_MAX else _shorten(part) for part in parts)


def _shorten(part: str) -> str:
    head = part[: _NAME_BYTES_MAX - 33]
    # Not within a quoted character: DuckDB unquotes the names of folders, and refuses what is no UTF-8.
    while not _is_quoted_whole(head):
        head = head[: head.rindex("%")]
    return f"{head}-{hashlib.sha256(part.encode()).hexdigest()[:32]}"


def _is_quoted_whole(text: str) -> bool:
    try:
        unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return False
    return "%" not in text[-2:]


def _lake_field(field: NestedField, current: Schema) -> NestedField:
    """Return a column of ours as it is written: called and typed as the lake has it, without what others added within it."""
    found = current.find_field(field.field_id)
    if found.field_type.is_primitive:
        return found
    return found.model_copy(update={"field_type": wide_field(field, current).field_type})


def _sort_order_id(layout: LakeLayout, lake: Table) -> int | None:
    found = lake.sort_order()
    wanted = [(field.source_id, field.transform, field.direction) for field in layout.sort_order.fields]
    matches = [(field.source_id, field.transform, field.direction) for field in found.fields] == wanted
    return found.order_id if matches else None
