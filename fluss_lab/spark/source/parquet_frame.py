"""Files of the lake as a DataFrame of Spark's own Parquet reader, which prunes columns and takes over filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import LakeSplit
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.spark.session.native_codecs import load_codecs
from fluss_lab.spark.source.spark_columns import jvm_columns
from fluss_lab.spark.source.tail_files import FIELD_ID, TailFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

#: Files are given one by one: nothing is to be found out from the names of their folders. What is missing or damaged is
#: an error, whatever the session says, and pages are compared with their checksums, which Parquet's reader in Java does
#: only when set to. Iceberg's days and times are of the proleptic Gregorian calendar.
_READ_OPTIONS: Final = {
    "recursiveFileLookup": "true",
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
}
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_NOT_FOUND: Final = "PATH_NOT_FOUND"
_READERS_SETTING: Final = "spark.sql.sources.useV1SourceList"
_LISTING_SETTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def file_fields(source: TableSource, schema: T.StructType, *, in_lake: bool = True) -> T.StructType:
    """Return columns as they are found in files: by field id, and named as a filter may be pushed to them.

    Spark finds columns by id but pushes filters by name. Where a name may mean something else in some file, or files would
    mislead their reader about values, the column is read under a name that no file has, which costs the pushed filter and
    nothing else.

    Args:
        source: The table.
        schema: The columns wanted.
        in_lake: Whether files of the lake are read; else all of them are found by name.
    """
    from pyspark.sql import types as T  # noqa: N812

    known = source.lake_source.file_columns() if in_lake else {}
    fields = []
    for field in schema.fields:
        place = known.get(field.name)
        metadata: dict[str, Any] = {} if place is None else {FIELD_ID: place.field_id}
        is_pushed = place is None or (place.named and not _misleads(field.dataType))
        # A name that is reserved, so no column of the table has it.
        name = field.name if place is None or is_pushed else f"_r{place.field_id}"
        fields.append(T.StructField(name, field.dataType, True, metadata))
    return T.StructType(fields)


def finds_fields(source: TableSource, names: Sequence[str]) -> bool:
    """Return whether Spark's reader finds columns in the lake's files: what is within them, by name, and all in the table's own types.

    Args:
        source: The table, with rows in the lake.
        names: The columns.
    """
    known = source.lake_source.file_columns()
    return all(known[name].inner_named and known[name].own_typed for name in names if name in known)


def _misleads(dtype: T.DataType) -> bool:
    """Return whether a filter of a type that is pushed to files may lose rows.

    Statistics of floating-point numbers leave NaN out, which Spark sorts above all numbers, and what they are stored by
    distinguishes -0.0 from 0.0, which are equal. No filter reaches into arrays and maps.
    """
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(dtype, T.StructType):
        return any(_misleads(field.dataType) for field in dtype.fields)
    return isinstance(dtype, T.FloatType | T.DoubleType)


def parquet_frame(
    session: SparkSession,
    source: TableSource,
    splits: Sequence[LakeSplit],
    schema: T.StructType,
    tail: TailFile | None = None,
    *,
    where: Callable[[Mapping[str, Any]], Any] | None = None,
    helpers: T.StructType | None = None,
) -> DataFrame:
    """Return columns of Parquet files, found by field id; `LakeSource.check_files` has compared the files.

    Args:
        source: The table.
        splits: Files of the lake.
        schema: The columns wanted.
        tail: A file with the log's part beside them, written with the `file_fields` of these columns; it is kept for
            as long as the frame, or what is made of it, may be read.
        where: Makes the condition of rows wanted, of columns by name; see `JvmColumns`.
        helpers: Further columns that it needs.

    Raises:
        LakeSnapshotNotFoundError: Files were replaced since they were compared; plan the read again.
        CorruptDataError: A file was removed since then, or is another.
        StorageError: Spark cannot unpack what it needs for them.
    """
    from pyspark.sql import types as T  # noqa: N812

    load_codecs(session)
    wanted = [*schema.fields, *(() if helpers is None else helpers.fields)]
    fields = file_fields(source, type(schema)(wanted)) if tail is None else tail.fields
    # No name is a pattern. (Switching patterns off, Spark pairs every such name with every other.)
    places = [split.path for split in splits] + ([] if tail is None else [f"file:{tail.path}"])
    paths = [_PATTERN.sub(r"\\\1", place) for place in places]
    with _set_for_files(session, paths):
        reader = session.read.schema(fields).options(**_READ_OPTIONS)
        frame = _frame_of_all(source, splits, lambda: reader.parquet(*paths), len(set(places)))
    if tail is not None:
        tail.keep_for(frame)
    jvm = jvm_columns(session)
    columns = {}
    for field, each in zip(fields.fields, wanted, strict=True):
        column = jvm.column(frame, field.name)
        is_found_whole = field.name != each.name and isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType)
        columns[each.name] = jvm.keep_whole(column) if is_found_whole else column
    found = frame if where is None else jvm.where(frame, where(columns))
    return jvm.select(found, [jvm.rename(columns[name], name) for name in schema.names])


def _frame_of_all(
    source: TableSource, splits: Sequence[LakeSplit], make: Callable[[], DataFrame], count: int
) -> DataFrame:
    """Return a frame that has all of its files, so many.

    Spark looks for them twice: one that is gone when it does so again, as an expiry removes them, it leaves out without a word.
    """
    from pyspark.errors import AnalysisException

    failpoint("spark.files.before")
    try:
        frame = make()
        if int(frame._jdf.logicalPlan().relation().location().allFiles().size()) == count:
            return frame
    except AnalysisException as error:
        if error.getCondition() != _NOT_FOUND:
            raise
    source.lake_source.check_files(splits)
    raise LakeSnapshotNotFoundError(
        f"table {source.info.path}: files of the lake were replaced while Spark looked for them; plan the read again"
    )


@contextmanager
def _set_for_files(session: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Have Spark open files by the reader that these frames are made for, whatever the session says.

    The driver looks local files up itself: for 400 files 0.1 s, where Spark's job for it takes 1.5 s and more.
    """
    readers = session.conf.get(_READERS_SETTING)
    # As nearly always: what is set has to be put back, and each is a call of the JVM.
    is_ours = readers is not None and "parquet" in (each.strip().lower() for each in readers.split(","))
    wanted = {} if is_ours else {_READERS_SETTING: "parquet"}
    if all(path.startswith(("file:", "/")) for path in paths):
        wanted[_LISTING_SETTING] = str(len(paths))
    before = {name: value for name in wanted if (value := session.conf.get(name)) is not None}
    for name in before:
        session.conf.set(name, wanted[name])
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
