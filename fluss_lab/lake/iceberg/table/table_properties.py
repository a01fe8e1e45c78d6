"""The properties of a lake table: those forwarded from the Fluss table, our defaults, and what is refused.

A property is forwarded when tiering goes by it, or when it speaks to other engines only (how they read, distribute or
isolate). One that would have to change what tiering writes and does not, is refused; so is an unknown one. Names under
``custom.`` are free. Sources: Apache Iceberg documentation, "Configuration" (1.10), and pyiceberg's table properties; FIP
"Iceberg tiering", general rule 1: a property under ``iceberg.`` is forwarded without that prefix, every
other one with ``fluss.`` before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pyiceberg.table import TableProperties
from pyiceberg.types import BinaryType, StringType

from fluss_lab.errors import InvalidPropertyError, UnsupportedError
from fluss_lab.lake.iceberg.files.parquet_output import ParquetSettings
from fluss_lab.lake.iceberg.table.catalog_access import IO_PROPERTY
from fluss_lab.lake.iceberg.table.layout import FIELD_IDS_PROPERTY, FORMAT_VERSION, TABLE_ID_PROPERTY, LakeLayout
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from pyiceberg.table import Table

ICEBERG_PREFIX: Final = "iceberg."
FLUSS_PREFIX: Final = "fluss."
COMMENT_PROPERTY: Final = "comment"
#: JSON list: which properties without ``fluss.`` came from the Fluss table, so that a reset there can reach the lake.
FORWARDED_PROPERTY: Final = "fluss.forwarded"
#: Tables with more columns keep bounds for keys and system columns only: every entry of every manifest holds them.
BOUNDED_COLUMNS_MAX: Final = 32
_METRICS: Final = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
#: What commits keep in the lake table for later ones (see `replay_start_tags`, `maintenance_state`, `partition_history`): no property of the
#: Fluss table.
STATE_PROPERTIES: Final = ("fluss.replay-start", "fluss.maintenance", "fluss.location", "fluss.dropped-partitions")
#: Where a table was asked to be put, in a catalog that has the last word on it.
LOCATION_PROPERTY: Final = STATE_PROPERTIES[2]

#: What a table gets unless its Fluss properties say otherwise. None of it is named by the FIP: files and rows are the
#: same with and without, these keep the cost of commits and planning flat as snapshots and files grow in number.
DEFAULTS: Final[Mapping[str, str]] = {
    TableProperties.PARQUET_COMPRESSION: "zstd",
    # A round commits every few seconds: without merging, planning opens one manifest per round ever made.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "20",
    # Rewriting 1 MB of manifest every twentieth commit costs tens of milliseconds, Iceberg's 8 MB some seconds.
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(1024 * 1024),
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
}
#: How other engines change rows of a primary-key table. A rewrite of whole files by an UPDATE would take the place of
#: rows that a round under way is going to delete, and would hide from replay what it retired.
MERGE_ON_READ: Final[Mapping[str, str]] = dict.fromkeys(
    (TableProperties.DELETE_MODE, "write.update.mode", "write.merge.mode"), TableProperties.DELETE_MODE_MERGE_ON_READ
)
#: Where files are put that do not go to the table's location.
PLACES: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
#: Properties that name code to be loaded by every reader of the table.
_CODE: Final = (IO_PROPERTY, TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL)
_WHOLE_NUMBERS: Final = (
    TableProperties.MANIFEST_MIN_MERGE_COUNT,
    TableProperties.MANIFEST_TARGET_SIZE_BYTES,
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
    TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
    *(
        f"{family}.{name}"
        for family in ("commit.retry", "commit.status-check")
        for name in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")
    ),
)


def forwarded_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a Fluss table's properties as the lake table has them.

    Raises:
        UnsupportedError: One that fluss_lab cannot honour; the text says why.
        InvalidPropertyError: A value that cannot be, or an unknown name (see `check_name`).
    """
    forwarded: dict[str, str] = {}
    for key, value in properties.items():
        if key.startswith(ICEBERG_PREFIX):
            name = key.removeprefix(ICEBERG_PREFIX)
            _check_property(name, value)
            if name != TableProperties.FORMAT_VERSION:
                forwarded[name] = value
        else:
            forwarded[FLUSS_PREFIX + key] = value
    ParquetSettings.of(forwarded)
    ParquetSettings.of_deletes(forwarded)
    return forwarded


def lake_properties(table: TableInfo, layout: LakeLayout) -> dict[str, str]:
    """Return all properties that a table's lake table has, beside those that others set there.

    Raises:
        UnsupportedError, InvalidPropertyError: As `forwarded_properties`.
    """
    descriptor = table.descriptor
    forwarded = forwarded_properties(descriptor.properties)
    modes = {} if table.is_log_table else MERGE_ON_READ
    _check_modes(modes, forwarded)
    forwarded |= own_folders(table, forwarded)
    ours = {TABLE_ID_PROPERTY: str(table.table_id), FIELD_IDS_PROPERTY: layout.field_ids_json(table)}
    if descriptor.comment is not None:
        ours[COMMENT_PROPERTY] = descriptor.comment
    if plain := sorted(key for key in forwarded if not key.startswith(FLUSS_PREFIX)):
        ours[FORWARDED_PROPERTY] = json.dumps(plain, separators=(",", ":"))
    return {**DEFAULTS, **_metrics(table, layout), **forwarded, **modes, **ours}


def own_folders(table: TableInfo, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that put a table's files elsewhere, with a folder of the table's own below each place.

    So no two tables share a folder: what a dropped table had there can be removed, and orphan files be looked for.
    """
    below = f"{table.path.database}/{table.path.table}-{table.table_id}"
    return {name: f"{properties[name].rstrip('/')}/{below}" for name in PLACES if properties.get(name)}


def folders_elsewhere(lake: Table) -> list[str]:
    """Return the folders of `own_folders` that a lake table has, by the table id that it says it is of."""
    table_id = lake.properties.get(TABLE_ID_PROPERTY)
    found = {lake.properties.get(name, "").rstrip("/") for name in PLACES}
    return sorted(folder for folder in found if table_id is not None and folder.endswith(f"-{table_id}"))


def changed_properties(current: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return what to set and what to remove, so that a lake table's properties become the wanted ones.

    What others set in the lake stays: removed is only what came from the Fluss table and is no longer wanted.
    """
    before = json.loads(current.get(FORWARDED_PROPERTY, "[]"))
    gone = {key for key in current if key.startswith(FLUSS_PREFIX) or key in before} - {*wanted, *STATE_PROPERTIES}
    return {key: value for key, value in wanted.items() if current.get(key) != value}, sorted(gone)


def _metrics(table: TableInfo, layout: LakeLayout) -> dict[str, str]:
    """Exact bounds for what is sought by: keys, partition and system columns. Long strings keep Iceberg's cut."""
    descriptor = table.descriptor
    modes = {f"{_METRICS}.{name}": "full" for name in SYSTEM_COLUMNS}
    for name in (*descriptor.partitioned_by, *descriptor.bucket_key, *table.schema.primary_key):
        is_text = isinstance(layout.schema.find_field(name).field_type, StringType | BinaryType)
        modes[f"{_METRICS}.{name}"] = TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT if is_text else "full"
    if len(table.schema.columns) > BOUNDED_COLUMNS_MAX:
        modes[TableProperties.DEFAULT_WRITE_METRICS_MODE] = "counts"
    return modes


def _check_modes(modes: Mapping[str, str], forwarded: Mapping[str, str]) -> None:
    for name, mode in modes.items():
        if (found := forwarded.get(name, mode)) != mode:
            raise UnsupportedError(
                f"property {ICEBERG_PREFIX + name!r}: expected {mode}, found {found!r}: a table with a primary key is "
                "merge-on-read in the lake; leave the property out"
            )


def _check_property(name: str, value: str) -> None:
    what = f"property {ICEBERG_PREFIX + name!r}"
    if name in _CODE:
        raise UnsupportedError(f"{what}: it names code that every reader would run; fluss_lab does not forward it")
    if name.startswith(FLUSS_PREFIX):
        raise UnsupportedError(f"{what}: names under {FLUSS_PREFIX!r} belong to the Fluss table's own properties")
    check_name(ICEBERG_PREFIX + name, name)
    check_choice(ICEBERG_PREFIX + name, name, value)
    if name == TableProperties.FORMAT_VERSION and value != str(FORMAT_VERSION):
        raise UnsupportedError(f"{what}: expected {FORMAT_VERSION}, found {value!r}; fluss_lab writes no other")
    if name == TableProperties.WRITE_FILE_FORMAT and value.lower() != "parquet":
        raise UnsupportedError(f"{what}: expected parquet, found {value!r}; fluss_lab writes no other")
    if name in PLACES and ("?" in value or "#" in value):
        raise InvalidPropertyError(f"{what}: the characters '?#' cannot be in a location, found {value!r}")
    if name in _WHOLE_NUMBERS and not value.isdecimal():
        raise InvalidPropertyError(f"{what}: expected a whole number, found {value!r}")
    if name.startswith("write.metadata.metrics."):
        from pyiceberg.io.pyarrow import match_metrics_mode

        try:
            match_metrics_mode(value)
        except ValueError as error:
            raise InvalidPropertyError(
                f"{what}: expected none, counts, truncate(n) or full, found {value!r}"
            ) from error


#: Names under it are forwarded whatever they are.
CUSTOM_PREFIX: Final = "custom."
#: Tiering, commits and maintenance go by these.
_HONOURED: Final = frozenset(
    f"write.{name}"
    for name in (
        "avro.compression-codec", "data.path", "delete.format.default", "delete.mode",
        "delete.parquet.compression-codec", "delete.parquet.compression-level", "delete.parquet.dict-size-bytes",
        "delete.parquet.page-row-limit", "delete.parquet.page-size-bytes", "delete.parquet.row-group-limit",
        "delete.parquet.row-group-size-bytes", "delete.target-file-size-bytes", "format.default", "merge.mode",
        "metadata.compression-codec", "metadata.delete-after-commit.enabled", "metadata.metrics.default",
        "metadata.path", "metadata.previous-versions-max", "object-storage.enabled",
        "object-storage.partitioned-paths", "parquet.compression-codec", "parquet.compression-level",
        "parquet.dict-size-bytes", "parquet.page-row-limit", "parquet.page-size-bytes", "parquet.row-group-limit",
        "parquet.row-group-size-bytes", "summary.partition-limit", "target-file-size-bytes", "update.mode",
    )
) | frozenset(
    f"commit.{name}"
    for name in (
        "manifest-merge.enabled", "manifest.min-count-to-merge", "manifest.target-size-bytes", "retry.max-wait-ms",
        "retry.min-wait-ms", "retry.num-retries", "retry.total-timeout-ms", "status-check.max-wait-ms",
        "status-check.min-wait-ms", "status-check.num-retries", "status-check.total-timeout-ms",
    )
) | frozenset(
    ("format-version", "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep")
)  # fmt: skip
#: Other engines go by these when they read or write the table; what tiering writes is right for every value of them.
_OF_OTHERS: Final = frozenset((
    "commit.retry.catalog-cache-enabled", "compatibility.snapshot-id-inheritance.enabled", "engine.hive.enabled",
    "engine.hive.lock-enabled", "gc.enabled", "history.expire.max-ref-age-ms", "owner", "read.data-planning-mode",
    "read.delete-planning-mode", "read.orc.vectorization.batch-size", "read.orc.vectorization.enabled",
    "read.parquet.vectorization.batch-size", "read.parquet.vectorization.enabled", "read.split.adaptive-size.enabled",
    "read.split.metadata-target-size", "read.split.open-file-cost", "read.split.planning-lookback",
    "read.split.target-size", "schema.name-mapping.default", "write.delete.distribution-mode",
    "write.delete.granularity", "write.delete.isolation-level", "write.distribution-mode",
    "write.merge.distribution-mode", "write.merge.isolation-level", "write.metadata.metrics.max-inferred-column-defaults",
    "write.spark.accept-any-schema", "write.spark.advisory-partition-size-bytes", "write.spark.fanout.enabled",
    "write.update.distribution-mode", "write.update.isolation-level", "write.upsert.enabled", "write.wap.enabled",
))  # fmt: skip
#: Names that go on with the name of a column.
_BY_COLUMN: Final = ("write.metadata.metrics.column.",)
#: What tiering would have to do and does not, by the beginning of the name.
_NOT_DONE: Final[Mapping[str, str]] = {
    "write.parquet.bloom-filter-": "tiering writes no Bloom filters",
    "write.parquet.row-group-check-": "tiering ends row groups by rows and bytes, see write.parquet.row-group-limit",
    "write.parquet.stats-enabled.": "tiering writes statistics of every column",
    "write.delete.parquet.bloom-filter-": "tiering writes no Bloom filters",
    "write.orc.": "tiering writes Parquet",
    "write.delete.orc.": "tiering writes Parquet",
    "write.delete.avro.": "tiering writes Parquet",
    "write.avro.compression-level": "tiering compresses manifests at the codec's own level",
    "write.location-provider.impl": "it names code that every writer would run",
    "write.object-storage.path": "use write.data.path",
    "write.folder-storage.path": "use write.data.path",
    "write.metadata.row-lineage": "tiering writes format version 2",
    "encryption.": "tiering writes files that are not encrypted",
}


def check_name(key: str, name: str) -> None:
    """Check that a property may be forwarded.

    Args:
        key: As the caller wrote it, for messages.
        name: As the lake table would have it.

    Raises:
        UnsupportedError: Iceberg knows it, and tiering does not do what it asks for.
        InvalidPropertyError: Nobody knows it; the text says what it may have meant.
    """
    if name in _HONOURED or name in _OF_OTHERS or name.startswith((CUSTOM_PREFIX, *_BY_COLUMN)):
        return
    for beginning, why in _NOT_DONE.items():
        if name.startswith(beginning):
            raise UnsupportedError(f"property {key!r}: {why}; leave the property out")
    near = get_close_matches(name, [*_HONOURED, *_OF_OTHERS], n=1, cutoff=0.7)
    prefix = key.removesuffix(name)
    hint = f"did you mean {prefix + near[0]!r}? Else" if near else "if it is your own,"
    raise InvalidPropertyError(
        f"property {key!r}: Iceberg has no table property {name!r}; {hint} put it under {prefix + CUSTOM_PREFIX!r}, which "
        "is forwarded as it is"
    )


_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "write.avro.compression-codec": frozenset(
        {"gzip", "zstd", "snappy", "uncompressed", "deflate", "zstandard", "null"}
    ),
    "write.delete.format.default": frozenset({"parquet"}),
    "write.metadata.compression-codec": frozenset({"none"}),
}
_BOOLEANS: Final = re.compile(r".*(\.enabled|-enabled|partitioned-paths|accept-any-schema)")


def check_choice(key: str, name: str, value: str) -> None:
    """Check the value of a property that has but a few.

    Raises:
        InvalidPropertyError, UnsupportedError: It is none of them; the text names them.
    """
    if (choices := _CHOICES.get(name)) is not None and value.lower() not in choices:
        raise UnsupportedError(
            f"property {key!r}: expected {' or '.join(sorted(choices))}, found {value!r}; tiering writes no other"
        )
    if name in _HONOURED | _OF_OTHERS and _BOOLEANS.fullmatch(name) and value.lower() not in {"true", "false"}:
        raise InvalidPropertyError(f"property {key!r}: expected true or false, found {value!r}")
