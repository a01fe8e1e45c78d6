"""Changes of a primary-key table, and what readers see of them."""

import random

from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.changelogs import (
    Changelog,
    expected_rows,
    same_rows,
)

#: Names that are Iceberg's own in delete files, and a user's in data files.
COLUMNS = {"id": "bigint not null", "pos": "int", "file_path": "string", "row": "row<a int, pos array<string>>"}


def row(key: int, rng: random.Random) -> dict:
    nested = None if rng.random() < 0.2 else {"a": rng.randrange(100), "pos": ["x", None][: rng.randrange(3)]}
    return {"id": key, "pos": rng.randrange(1000), "file_path": f"f{rng.random()}", "row": nested}


def keyed(lake, columns=None, key=("id",), **definition):
    return lake.table(columns or COLUMNS, primary_key=list(key), **({"buckets": 1} | definition))


def changelog(info) -> Changelog:
    return Changelog(info.schema.arrow_schema, info.schema.primary_key)


def change(log: Changelog, rng: random.Random, count: int, keys: int) -> None:
    """Make random changes, some keys changing again and again."""
    for _ in range(count):
        key = rng.randrange(keys) if rng.random() < 0.7 else rng.randrange(3)
        if rng.random() < 0.25:
            log.delete((key,))
        else:
            log.upsert(row(key, rng))


def seen_by_all(lake, info, log: Changelog) -> None:
    """Compare what DuckDB and pyiceberg read with the model."""
    expected, table = expected_rows(lake, info, log), lake.load(info)
    assert same_rows(table.scan().to_arrow(), expected)
    assert same_rows(duckdb_rows(table.metadata_location), expected)


def files_on_disk(lake) -> set:
    return set(lake.folder.rglob("*.parquet"))
