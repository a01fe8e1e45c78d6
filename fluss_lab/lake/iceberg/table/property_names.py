"""The names of Iceberg's table properties: which are forwarded, which are refused, and what a misspelt one may have meant.

Source: Apache Iceberg documentation, "Configuration" (1.10), and pyiceberg's table properties. A property is forwarded when
tiering goes by it, or when it speaks to other engines only (how they read, distribute or isolate). One that would have to
change what tiering writes and does not, is refused; so is one that nobody knows. Names under ``custom.`` are anybody's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from fluss_lab.errors import InvalidPropertyError, UnsupportedError

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
