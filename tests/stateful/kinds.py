"""The kinds of tables that the state machine makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.stateful.model import Row

NAMES = st.sampled_from(["", "a", "bb", "ünïcode", "x" * 40])
NUMBERS = st.one_of(st.none(), st.integers(-5, 5).map(float))


@dataclass(frozen=True)
class Kind:
    """How to make a table, and rows for it. Few keys, so that they meet."""

    columns: dict[str, str]
    key_values: dict[str, st.SearchStrategy]
    others: dict[str, st.SearchStrategy] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    bucket_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    buckets: int = 2
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> st.SearchStrategy[Row]:
        return st.fixed_dictionaries(self.key_values)

    @property
    def rows(self) -> st.SearchStrategy[Row]:
        return st.fixed_dictionaries({**self.key_values, **self.others})


SMALL = st.integers(0, 11)
OTHERS = {"name": NAMES, "x": NUMBERS}
COLUMNS = {"name": "string", "x": "double"}
PARTITION = st.sampled_from(["p1", "p2", "p3"])

KINDS = {
    "log": Kind({"id": "bigint", **COLUMNS}, {"id": SMALL}, OTHERS, bucket_key=("id",)),
    "log_parts": Kind(
        {"id": "bigint", "p": "string", **COLUMNS}, {"id": SMALL, "p": PARTITION}, OTHERS, partitioned_by=("p",), buckets=1
    ),
    "pk": Kind({"id": "bigint", **COLUMNS}, {"id": SMALL}, OTHERS, primary_key=("id",)),
    "pk_words": Kind(
        {"word": "string", **COLUMNS},
        {"word": st.sampled_from(["", "a", "b", "ab", "a" * 30])},
        OTHERS,
        primary_key=("word",),
        buckets=1,
    ),
    "pk_prefix": Kind(
        {"g": "int", "word": "string", **COLUMNS},
        {"g": st.integers(0, 3), "word": st.sampled_from(["", "a", "b", "ab"])},
        OTHERS,
        primary_key=("g", "word"),
        bucket_key=("g",),
    ),
    "pk_parts": Kind(
        {"id": "bigint", "p": "string", **COLUMNS},
        {"id": SMALL, "p": PARTITION},
        OTHERS,
        primary_key=("id", "p"),
        partitioned_by=("p",),
        buckets=1,
    ),
    "pk_first": Kind(
        {"id": "bigint", **COLUMNS}, {"id": SMALL}, OTHERS, primary_key=("id",), buckets=1,
        properties={"table.merge-engine": "first_row"},
    ),
    "pk_versioned": Kind(
        {"id": "bigint", "v": "bigint", **COLUMNS},
        {"id": SMALL},
        {"v": st.integers(0, 4), **OTHERS},
        primary_key=("id",),
        buckets=1,
        properties={"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
    ),
}  # fmt: skip
