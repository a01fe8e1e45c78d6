"""The rows of a primary-key table in a file system as DataFrames: files by Spark's Parquet reader, the log's end too or by tasks.

Every record that ends a row names it by its offset, so which rows of the files are left out is a set of offsets, known when
the frame is made. Spark gets them as bits, in an array that is a scalar subquery: one test of a bit for each row of a file
that has dead rows, in the code that it generates, where a join would cost several times the read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import LakeSplit
from fluss_lab.read.filter.filter_pushdown import computes
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.pk_merge import TAIL_BYTES
from fluss_lab.read.union.read_columns import LAKE, LOG, OFFSET, make_columns
from fluss_lab.read.union.read_parts import MOVED, Plan, Request
from fluss_lab.read.union.scan import Scan
from fluss_lab.read.union.whole_files import Tails, WholeFiles, log_records, whole_files
from fluss_lab.spark.session.spark_session import as_active
from fluss_lab.spark.source.parquet_frame import file_fields, finds_fields, parquet_frame
from fluss_lab.spark.source.spark_columns import jvm_columns
from fluss_lab.spark.source.spark_types import wanted_schema
from fluss_lab.spark.source.tail_files import TailFile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

_BUCKET: Final = "__bucket"
#: Bits of a word.
_BITS: Final = 64
#: All words of a table: 8 MB, which go with each stage of a query. A bit stands for an offset between the first and the last
#: one of a bucket's files, so that a table that was written over many times takes more of them than it has rows.
WORDS_MAX: Final = 1 << 20
#: Partitions with dead rows, each of which is a read of its own in Spark's plan.
PARTITIONS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class FramePart:
    """Rows of one source.

    Attributes:
        source: Lake or log.
        frame: The rows.
    """

    source: str
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class KeyedRead:
    """What a frame of a primary-key table reads.

    Attributes:
        files: Of the lake, by bucket.
        tails: The log's part.
    """

    files: Sequence[WholeFiles]
    tails: Tails


def keyed_read(session: SparkSession, scan: Scan, names: Sequence[str]) -> KeyedRead | None:
    """Return what a scan of a primary-key table reads, if the JVM can read the files; None: tasks merge its buckets.

    Tasks do where there is more to it than files and offsets (a limit, an earlier moment within a file, deletes by other
    engines, rows that neither lake nor log have alone), where files may call fields within columns otherwise, where the offsets are
    spread too widely, and where the plan did not last: they plan again.

    Args:
        session: Where the frame is to be.
        scan: The scan.
        names: The columns that the frame's parts have.

    Cost: the read point is taken and the read is planned; see `whole_files`.
    """
    where = scan.selection.filter
    if scan.limit is not None or (where is not None and computes(where.predicate)):
        return None
    source, plan = scan.source, scan.plan()
    if any(part.splits for part in plan.parts) and not finds_fields(source, names):
        return None
    tails = _tails(session, source, plan, names)
    try:
        files = whole_files(source, plan, tails)
        if not files or not _fits(files):
            return None
        # Spark leaves empty files out without a word, and believes footers.
        source.lake_source.check_files([split for each in files for split in each.part.splits])
    except (*MOVED, CorruptDataError):
        return None
    return KeyedRead(files, tails)


def _tails(session: SparkSession, source: TableSource, plan: Plan, names: Sequence[str]) -> Tails:
    """Return the log's part of a plan, which keeps its rows where they are to be written to a file."""
    from fluss_lab.spark.source.tail_files import tail_size_max

    size_max = tail_size_max(session, source, log_records(plan.parts))
    # In memory never more than one bucket's tail may be of any reader.
    return Tails(source, plan, Request(make_columns(source.info.schema, names), None), min(size_max, TAIL_BYTES))


def _fits(files: Sequence[WholeFiles]) -> bool:
    holed = [each for each in files if each.holed]
    words = sum(_words(each)[1] for each in holed)
    return words <= WORDS_MAX and len({each.part.partition for each in holed}) <= PARTITIONS_MAX


def keyed_frames(
    session: SparkSession, source: TableSource, read: KeyedRead, schema: T.StructType, *, with_source: bool = False
) -> list[FramePart]:
    """Return the rows of a read as frames of a schema.

    Args:
        with_source: Whether those of lake and log are to be kept apart.
    """
    from fluss_lab.spark.source.log_range_source import keyed_log_frame
    from fluss_lab.spark.source.tail_files import keyed_tail

    first, *others = _lake_reads(source, read.files, schema)
    # A row of the log counts as live where the bucket or the offset is null, which only one that nobody asked for can be.
    apart = with_source or (first.holed and not first.helpers.fields)
    wanted = schema if apart else type(schema)([*schema.fields, *first.helpers.fields])
    fields = file_fields(source, wanted, in_lake=not apart)
    with keyed_tail(session, source, read.tails, schema, fields) as tail:
        frames = [FramePart(LAKE, _lake_frame(session, source, first, schema, None if apart else tail))]
        if tail is not None and apart:
            frames.append(FramePart(LOG, parquet_frame(session, source, (), schema, tail)))
    frames += [FramePart(LAKE, _lake_frame(session, source, each, schema)) for each in others]
    if tail is None and read.tails.plan.parts:
        log = keyed_log_frame(session, source.connection, source.info, read.tails.plan, schema)
        frames.append(FramePart(LOG, log))
    return frames


@dataclass(frozen=True, slots=True)
class _LakeRead:
    """Files of the lake that are read by one scan.

    Attributes:
        splits: The files.
        holed: Whose dead rows are left out; empty: all of them are wanted.
        helpers: The columns, beside those wanted, by which dead rows are found.
    """

    splits: Sequence[LakeSplit]
    holed: Sequence[WholeFiles]
    helpers: T.StructType


def _lake_reads(source: TableSource, files: Sequence[WholeFiles], schema: T.StructType) -> list[_LakeRead]:
    """Return how files are read: those without dead rows together, others partition by partition."""
    helpers = [name for name in (_BUCKET, OFFSET) if name not in schema.names]
    reads = []
    if clean := [split for each in files for split in each.clean]:
        reads.append(_LakeRead(clean, (), wanted_schema(source.info.schema, [])))
    by_partition: dict[str | None, list[WholeFiles]] = {}
    for each in files:
        if each.holed:
            by_partition.setdefault(each.part.partition, []).append(each)
    for holed in by_partition.values():
        splits = [split for each in holed for split in each.holed]
        reads.append(_LakeRead(splits, holed, wanted_schema(source.info.schema, helpers)))
    return reads


def _lake_frame(
    session: SparkSession, source: TableSource, read: _LakeRead, schema: T.StructType, tail: TailFile | None = None
) -> DataFrame:
    """Return the live rows of files, and those of the log's part beside them."""
    if not read.holed:
        return parquet_frame(session, source, read.splits, schema, tail)
    words = pa.array([dead_bits(read.holed)], pa.list_(pa.int64()))
    with as_active(session):  # pyspark makes it that, and leaves it so
        bits = session.createDataFrame(pa.table({"bits": words})).scalar()._jc

    def is_alive(columns: Mapping[str, Any]) -> Any:
        # An offset that no word stands for is no dead row's.
        return jvm_columns(session).is_no_bit(bits, columns[_BUCKET], columns[OFFSET])

    return parquet_frame(session, source, read.splits, schema, tail, where=is_alive, helpers=read.helpers)


def dead_bits(files: Sequence[WholeFiles]) -> NDArray[np.int64]:
    """Return the dead offsets of buckets as bits.

    Returns:
        By bucket the number that, added to an offset's 64th part, gives the place of the word that has its bit; then the words.
    """
    heads = max(each.part.bucket.bucket for each in files) + 1
    starts = np.zeros(heads, dtype=np.int64)
    found = [starts]
    place = heads
    for each in files:
        first, count = _words(each)
        starts[each.part.bucket.bucket] = place - first
        bits = np.zeros(count * _BITS, dtype=bool)
        within = each.dead - first * _BITS
        bits[within[(within >= 0) & (within < len(bits))]] = True
        found.append(np.packbits(bits, bitorder="little").view("<i8"))
        place += count
    return np.concatenate(found)


def _words(files: WholeFiles) -> tuple[int, int]:
    """Return the first word of a bucket's holed files, as a 64th part of an offset, and how many there are."""
    first = min(split.min_offset for split in files.holed) // _BITS
    return first, max(split.max_offset for split in files.holed) // _BITS - first + 1
