"""The rows of a primary-key table in a file system as DataFrames: files by Spark's Parquet reader, the log's end too or by tasks.

Every record that ends a row names it by its offset, so which rows of the files are left out is a set of offsets, known when
the frame is made. Spark gets them as bits, in an array that is a scalar subquery: one test of a bit for each row of a file
that has dead rows, in the code that it generates, where a join would cost several times the read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.read.filter import predicates
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.pk_merge import TAIL_BYTES
from fluss_lab.read.union.read_columns import LAKE, LOG, OFFSET, make_columns
from fluss_lab.read.union.read_parts import MOVED, Plan, Request
from fluss_lab.read.union.scan import Scan
from fluss_lab.read.union.whole_files import Tails, WholeFiles, log_records, whole_files
from fluss_lab.spark.source.parquet_frame import file_fields, parquet_frame
from fluss_lab.spark.source.spark_types import stored_schema, wanted_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession
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
    engines, rows that neither lake nor log have alone), where the offsets are spread too widely, and where the plan did
    not last: they plan again.

    Args:
        session: Where the frame is to be.
        scan: The scan.
        names: The columns that the frame's parts have.

    Cost: the read point is taken and the read is planned; see `whole_files`.
    """
    where = scan.selection.filter
    if scan.limit is not None or (where is not None and _computes(where.predicate)):
        return None
    source, plan = scan.source, scan.plan()
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
    from fluss_lab.spark.source.log_range_source import tail_size_max

    size_max = tail_size_max(session, source, log_records(plan.parts))
    # In memory never more than one bucket's tail may be of any reader.
    return Tails(source, plan, Request(make_columns(source.info.schema, names), None), min(size_max, TAIL_BYTES))


def _computes(node: predicates.Predicate) -> bool:
    """Return whether a filter computes something, which Arrow does, so that rows would go to Python for it."""
    match node:
        case predicates.Applied():
            return True
        case predicates.Junction():
            return any(_computes(part) for part in node.parts)
        case _:
            return False


def _fits(files: Sequence[WholeFiles]) -> bool:
    holed = [each for each in files if each.holed]
    words = sum(_words(each)[1] for each in holed)
    return words <= WORDS_MAX and len({each.part.partition for each in holed}) <= PARTITIONS_MAX


def keyed_frames(session: SparkSession, source: TableSource, read: KeyedRead, schema: T.StructType) -> list[FramePart]:
    """Return the rows of a read as frames of a schema."""
    frames = []
    if clean := [split for each in read.files for split in each.clean]:
        frames.append(FramePart(LAKE, parquet_frame(session, source, clean, schema)))
    by_partition: dict[str | None, list[WholeFiles]] = {}
    for each in read.files:
        if each.holed:
            by_partition.setdefault(each.part.partition, []).append(each)
    frames += [FramePart(LAKE, _without_dead(session, source, holed, schema)) for holed in by_partition.values()]
    if read.tails.plan.parts:
        frames.append(FramePart(LOG, _tail_frame(session, source, read.tails, schema)))
    return frames


def _tail_frame(session: SparkSession, source: TableSource, tails: Tails, schema: T.StructType) -> DataFrame:
    """Return the log's rows: of a small tail a scan of its own, for the lake's leave out offsets that are no tail's."""
    from fluss_lab.spark.source.log_range_source import keyed_log_frame, keyed_tail

    fields = file_fields(source, schema, in_lake=False)
    with keyed_tail(session, source, tails, schema, fields) as tail:
        if tail is not None:
            return parquet_frame(session, source, (), schema, tail)
    return keyed_log_frame(session, source.connection, source.info, tails.plan, schema)


def _without_dead(
    session: SparkSession, source: TableSource, files: Sequence[WholeFiles], schema: T.StructType
) -> DataFrame:
    """Return the live rows of one partition's files."""
    from pyspark.sql import functions as F  # noqa: N812

    names = list(dict.fromkeys([*schema.names, _BUCKET, OFFSET]))
    wider = stored_schema(wanted_schema(source.info.schema, names))
    splits = [split for each in files for split in each.holed]
    frame = parquet_frame(session, source, splits, wider).where(_is_alive(session, files))
    return frame.select(*[F.col(f"`{name}`") for name in schema.names])


def _is_alive(session: SparkSession, files: Sequence[WholeFiles]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    words = pa.array([dead_bits(files)], pa.list_(pa.int64()))
    bits = session.createDataFrame(pa.table({"bits": words})).scalar()
    offset = F.col(OFFSET)
    word = F.get(bits, F.col(_BUCKET)) + F.shiftright(offset, 6)
    found = F.getbit(F.get(bits, word.cast("int")), offset.bitwiseAND(F.lit(_BITS - 1)).cast("int"))
    # An offset that no word stands for is no dead row's.
    return F.coalesce(found, F.lit(0).cast("tinyint")) == 0


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
