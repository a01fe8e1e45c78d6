"""Files of the lake as a DataFrame of Spark's own Parquet reader, which prunes columns and takes over filters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.lake import LakeSplit
from fluss_lab.read.moment.table_state import TableSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

#: Files are given one by one: nothing is to be found out from the names of their folders. What is missing or damaged is
#: an error, whatever the session says, and pages are compared with their checksums, which Parquet's reader in Java does
#: only when set to.
_READ_OPTIONS: Final = {
    "recursiveFileLookup": "true",
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_LISTING_SETTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_FIELD_ID: Final = "parquet.field.id"


def parquet_frame(
    session: SparkSession, source: TableSource, splits: Sequence[LakeSplit], schema: T.StructType
) -> DataFrame:
    """Return columns of Parquet files, found by field id; `LakeSource.check_files` has compared the files.

    Spark finds columns by id but pushes filters by name. Where a name may mean something else in some file, the column
    is read under a name that no file has, which costs the pushed filter and nothing else.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    known = source.lake_source.file_columns()
    fields, columns = [], []
    for field in schema.fields:
        place = known.get(field.name)
        metadata: dict[str, Any] = {} if place is None else {_FIELD_ID: place.field_id}
        name = field.name if place is None or place.named else f"__f{place.field_id}"
        fields.append(T.StructField(name, field.dataType, True, metadata))
        columns.append(F.col(f"`{name}`").alias(field.name, metadata={}))
    # No name is a pattern. (Switching patterns off, Spark pairs every such name with every other.)
    paths = [_PATTERN.sub(r"\\\1", split.path) for split in splits]
    with _listed_by_driver(session, paths):
        frame = session.read.schema(T.StructType(fields)).options(**_READ_OPTIONS).parquet(*paths)
    return frame.select(*columns)


@contextmanager
def _listed_by_driver(session: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Let the driver look local files up itself: for 400 files 0.1 s, where Spark's job for it takes 1.5 s and more."""
    before = session.conf.get(_LISTING_SETTING)
    local = all(path.startswith(("file:", "/")) for path in paths)
    if local and before is not None:
        session.conf.set(_LISTING_SETTING, str(len(paths)))
    try:
        yield
    finally:
        if local and before is not None:
            session.conf.set(_LISTING_SETTING, before)
