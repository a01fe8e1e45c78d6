"""What deletes cost readers of others: a primary-key table in the lake after many rounds of updates.

The same state five times: clean (no deletes), with bare position deletes (as anyone writes them), with ours (which carry
their row), after `compact`, and with equality deletes where a reader takes them. ``python -m benchmarks.lake_reading
--keys 200000 --rounds 10 --updates 2000`` tries it small; ``--spark`` lets stock Spark read, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable, Table

from benchmarks.data import SCHEMA, rows
from benchmarks.lake_copies import delete_files, with_bare_deletes
from benchmarks.report import Figures
from fluss_lab.client import Connection
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.readers import duckdb_connection
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from fluss_lab.tiering.round.tiering_round import run_round

BUCKETS: Final = 4
RUNS: Final = 5
BATCH_ROWS: Final = 50_000
#: A read that takes longer is not repeated.
LONG_S: Final = 5.0
DATABASE: Final = "bench"
Read = Callable[[str], tuple[Any, ...]]


@dataclass(frozen=True)
class Size:
    """How much is written."""

    keys: int = 5_000_000
    rounds: int = 50
    updates: int = 10_000


DEFAULT: Final = Size()
COUNT: Final = "select count(*) as n from lake"
AGGREGATE: Final = "select count(id) as n, cast(sum(amount) as bigint) as s from lake"
#: One more row: a file and a manifest more than the clean table has.
LATER: Final = "compacted, a round later"
POSITION_FORMS: Final = ("clean", "bare", "ours", "compacted", LATER)
#: Which form is held against which, and the goal.
COMPARISONS: Final = (
    ("bare", "clean", ""),
    ("ours", "bare", "1.2"),
    ("ours", "clean", ""),
    ("compacted", "clean", "1.3"),
    (LATER, "clean", ""),
    ("equality", "ours", ""),
)


def run(size: Size = DEFAULT, *, spark: bool = False) -> None:
    """Measure and print."""
    title = (
        f"lake reading: {size.keys:,} keys after {size.rounds} rounds of {size.updates:,} updates, {BUCKETS} buckets"
    )
    figures = Figures(f"{title}, seconds of the processor (stock Spark: by the clock)")
    with EmbeddedCluster() as cluster, _readers(spark=spark) as readers:
        places = _tables(Bench(cluster.connection, size), figures, equality=spark)
        for reader in readers:
            for query, read in reader.queries.items():
                # A reader's first answer is its warming up.
                read(places["clean"])
                rows_of = {form: size.keys + (form == LATER) for form in reader.forms}
                seconds = _timed(read, {form: places[form] for form in reader.forms}, rows_of, reader.clock)
                _compare(figures, f"{reader.name} {query}", seconds)
        _compare_delete_files(figures, places)
    figures.print()


def _compare_delete_files(figures: Figures, places: dict[str, str]) -> None:
    """Measure what pyiceberg pays for the columns of a delete file: as it reads one, and were it to ask for two columns."""
    ours, bare = (_newest_delete_file(places[form]) for form in ("ours", "bare"))
    for what, columns in (("as pyiceberg reads one", None), ("two columns asked for", ["file_path", "pos"])):
        turns = [[_delete_file_seconds(path, columns) for path in (ours, bare)] for _ in range(20 * RUNS)]
        seconds = [min(each) for each in zip(*turns, strict=True)]
        texts = [f"{each * 1000:.2f} ms" for each in seconds]
        figures.add(f"one delete file, {what}: ours", texts[0], f"bare {texts[1]}", seconds[0] / seconds[1])


def _newest_delete_file(metadata: str) -> str:
    """Return where the delete file of the last round and the last bucket is: of the same deletes in either form."""
    file, _ = max(delete_files(StaticTable.from_metadata(metadata)), key=lambda each: (each[1], each[0].partition[0]))
    return unquote(urlparse(file.file_path).path)


def _delete_file_seconds(path: str, columns: list[str] | None) -> float:
    """Read a delete file as `pyiceberg.io.pyarrow._read_deletes` does; return the seconds of the processor."""
    started = time.process_time()
    form = ds.ParquetFileFormat(dictionary_columns=["file_path"], pre_buffer=True, buffer_size=1 << 20)
    with pa.OSFile(path) as file:
        read = ds.Scanner.from_fragment(form.make_fragment(file), columns=columns).to_table().unify_dictionaries()
    for name in read.column("file_path").chunks[0].dictionary:
        read.filter(pc.field("file_path") == name).column("pos")
    return time.process_time() - started


def _compare(figures: Figures, what: str, seconds: dict[str, float]) -> None:
    for form, beside, goal in COMPARISONS:
        if form in seconds:
            measured, other = seconds[form], seconds[beside]
            figures.add(f"{what}: {form}", f"{measured:.3f}", f"{beside} {other:.3f}", measured / other, goal)


def _tables(bench: Bench, figures: Figures, *, equality: bool) -> dict[str, str]:
    """Make the table in each of its forms; return where the metadata of each is."""
    clean = bench.create("clean")
    bench.write(clean, bench.final())
    ours = bench.create("ours")
    started = time.perf_counter()
    bench.write(ours, bench.first())
    figures.add("first round, with its upserts", f"{time.perf_counter() - started:.1f}")
    started = time.perf_counter()
    for batch in bench.updates():
        bench.write(ours, batch)
    each_s = (time.perf_counter() - started) / bench.size.rounds
    figures.add("each further round, with its upserts", f"{each_s:.3f}")
    table = bench.load("ours")
    deletes = delete_files(table)
    figures.add("delete files, deletes", f"{len(deletes)}, {sum(file.record_count for file, _ in deletes):,}")
    places = {"clean": bench.load("clean").metadata_location, "ours": table.metadata_location}
    places["bare"] = with_bare_deletes(bench.catalog, table, "bare").metadata_location
    started = time.perf_counter()
    bench.compact(ours)
    figures.add("compact()", f"{time.perf_counter() - started:.1f}")
    places["compacted"] = bench.load("ours").metadata_location
    bench.write(ours, bench.one_more())
    places[LATER] = bench.load("ours").metadata_location
    if equality:
        other = bench.create("equality", **{"table.datalake.delete-mode": "equality"})
        for batch in (bench.first(), *bench.updates()):
            bench.write(other, batch)
        places["equality"] = bench.load("equality").metadata_location
    return places


class Bench:
    """Writes the tables."""

    def __init__(self, connection: Connection, size: Size) -> None:
        storage = connection.lake_storage()
        assert storage is not None
        self.connection = connection
        self.storage = storage
        self.size = size
        self._random = np.random.default_rng(11)
        self._base = rows(size.keys)
        self._keys = [self._random.choice(size.keys, size.updates, replace=False) for _ in range(size.rounds)]
        connection.admin().create_database(DATABASE, if_not_exists=True)

    def create(self, name: str, **properties: str) -> TableInfo:
        """Create a primary-key table that maintains itself only when it is told to."""
        descriptor = make_descriptor(
            SCHEMA,
            primary_key=["id"],
            buckets=BUCKETS,
            properties={
                "table.datalake.enabled": True,
                "table.datalake.freshness": "1h",
                "table.datalake.auto-maintenance": False,
                **properties,
            },
        )
        return self.connection.admin().create_table(TablePath(DATABASE, name), descriptor)

    def write(self, info: TableInfo, batch: pa.RecordBatch) -> None:
        """Upsert rows and tier them."""
        with self.connection.upsert_writer(info.path) as writer:
            for start in range(0, len(batch), BATCH_ROWS):
                writer.upsert(batch.slice(start, BATCH_ROWS))
        run_round(self.connection, self.storage, LocalTieringExecutor(), table_id=info.table_id)

    def first(self) -> pa.RecordBatch:
        """Return all keys as they begin."""
        return self._base

    def updates(self) -> list[pa.RecordBatch]:
        """Return what each round changes."""
        return [self._changed(number, keys) for number, keys in enumerate(self._keys)]

    def final(self) -> pa.RecordBatch:
        """Return all keys as they end."""
        amounts = self._base.column("amount").to_numpy().copy()
        for number, keys in enumerate(self._keys):
            amounts[keys] = number + 1_000
        position = SCHEMA.get_field_index("amount")
        columns = [*self._base.columns[:position], pa.array(amounts), *self._base.columns[position + 1 :]]
        return pa.record_batch(columns, schema=SCHEMA)

    def one_more(self) -> pa.RecordBatch:
        """Return a row of a key that there was not before."""
        columns = list(self._base.slice(0, 1).columns)
        columns[0] = pa.array([self.size.keys], pa.int64())
        return pa.record_batch(columns, schema=SCHEMA)

    def _changed(self, number: int, keys: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
        position = SCHEMA.get_field_index("amount")
        taken = self._base.take(pa.array(keys))
        columns = list(taken.columns)
        columns[position] = pa.array(np.full(len(keys), number + 1_000, np.int32))
        return pa.record_batch(columns, schema=SCHEMA)

    @property
    def catalog(self) -> Catalog:
        """Return the lake's catalog, as somebody else would load it. It exists once there is a table."""
        properties = dict(self.storage.properties)
        return load_catalog(properties.pop("name"), **properties)

    def load(self, name: str) -> Table:
        """Return a lake table as it is now."""
        return self.catalog.load_table((DATABASE, name))

    def compact(self, info: TableInfo) -> None:
        """Compact a table by hand."""
        maintain_by_hand(self.connection, self.storage, LocalTieringExecutor(), "compact", info.table_id)


class Reader:
    """A reader of others, by the place of a table's metadata. The first column of an answer is the number of rows."""

    def __init__(
        self,
        name: str,
        forms: Sequence[str],
        count: Read,
        aggregate: Read,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.name = name
        self.forms = forms
        self.clock = clock
        self.queries = {"count": count, "aggregate": aggregate}


@contextmanager
def _readers(*, spark: bool) -> Iterator[list[Reader]]:
    """Give the readers, running: starting one is not part of a read."""
    with ExitStack() as stack:
        connection = stack.enter_context(duckdb_connection())

        def duckdb(query: str) -> Read:
            def read(metadata: str) -> tuple[Any, ...]:
                connection.table_function("iceberg_scan", [metadata.removeprefix("file://")]).create_view("lake")
                return tuple(connection.execute(query).fetchall()[0])

            return read

        readers = [
            Reader("DuckDB", POSITION_FORMS, duckdb(COUNT), duckdb(AGGREGATE)),
            Reader("pyiceberg", POSITION_FORMS, _pyiceberg_count, _pyiceberg_aggregate),
        ]
        if spark:
            from tests.readers.stock_spark import StockSpark

            stock = stack.enter_context(StockSpark())

            def sql(query: str) -> Read:
                return lambda metadata: tuple(stock.rows(metadata, query).to_pylist()[0].values())

            readers.append(
                Reader("stock Spark", (*POSITION_FORMS, "equality"), sql(COUNT), sql(AGGREGATE), time.perf_counter)
            )
        yield readers


def _pyiceberg_count(metadata: str) -> tuple[Any, ...]:
    return (StaticTable.from_metadata(metadata).scan().count(),)


def _pyiceberg_aggregate(metadata: str) -> tuple[Any, ...]:
    found = StaticTable.from_metadata(metadata).scan(selected_fields=("id", "amount")).to_arrow()
    return (found.num_rows, pc.sum(found["amount"]).as_py())


def _timed(read: Read, places: dict[str, str], rows: dict[str, int], clock: Callable[[], float]) -> dict[str, float]:
    """Return the seconds of the fastest of some reads of each table, in turns; each must find its number of rows.

    A turn reads a table twice: of a read of milliseconds, what the read before left to be freed is half.
    """
    best: dict[str, float] = {}
    turn = [each for each in places.items() for _ in range(2)]
    for form, metadata in turn * RUNS:
        if best.get(form, 0.0) > LONG_S:
            continue
        started = clock()
        found = read(metadata)
        best[form] = min(best.get(form, float("inf")), clock() - started)
        assert found[0] == rows[form], (metadata, found, rows[form])
    return best


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=DEFAULT.keys)
    parser.add_argument("--rounds", type=int, default=DEFAULT.rounds)
    parser.add_argument("--updates", type=int, default=DEFAULT.updates)
    parser.add_argument("--spark", action="store_true", help="stock Spark too, from a Maven repository")
    chosen = parser.parse_args()
    run(Size(chosen.keys, chosen.rounds, chosen.updates), spark=chosen.spark)


if __name__ == "__main__":
    main()
