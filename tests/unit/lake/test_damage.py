"""Every kind of file of a lake table, damaged in every way, asked of every reader: the exact answer or one of our errors."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import GreaterThanOrEqual

from fluss_lab.errors import FlussError, InternalError
from fluss_lab.lake import CommitterInitContext, FetchContext, LookupContext
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.model import TableInfo
from tests.unit.lake.conftest import EPOCH_MS, Lake, summary
from tests.unit.lake.rounds import KeyedLake
from tests.unit.lake.upkeep import clock_at_now

KINDS = ("metadata", "list", "manifest", "data", "deletes", "catalog")
WAYS = ("deleted", "emptied", "cut", "flipped")


class Damaged:
    """Two tables, one of each kind, in a folder that is copied for each case."""

    def __init__(self, folder: Path) -> None:
        self.lake = lake = Lake(folder)
        properties = {"iceberg.write.parquet.row-group-limit": "64"}
        self.log = lake.table({"id": "bigint", "text": "string"}, name="log", table_id=3, properties=properties)
        for first in range(0, 600, 200):
            ids = range(first, first + 200)
            rows = pa.RecordBatch.from_pydict(
                {"id": list(ids), "text": [f"t{n % 7}" for n in ids]}, self.log.schema.arrow_schema
            )
            lake.append(self.log, rows, first)
        self.keyed = lake.table(
            {"id": "bigint not null", "name": "string"}, name="keyed", primary_key=["id"], buckets=1
        )
        self.model = KeyedLake(lake, self.keyed)
        for _ in range(3):
            self.model.change(random.Random(5), 60, keys=30)
            self.model.round()

    def files(self) -> dict[str, list[str]]:
        """Return the files that the newest snapshots need, by kind and table, below the folder."""
        found: dict[str, list[str]] = {"catalog": ["catalog/lake.db"]}
        for info in (self.log, self.keyed):
            table = self.lake.load(info)
            snapshot = table.current_snapshot()
            manifests = snapshot.manifests(table.io)
            entries = [entry.data_file for each in manifests for entry in each.fetch_manifest_entry(table.io)]
            of_kind = {
                "metadata": [table.metadata_location],
                "list": [snapshot.manifest_list],
                "manifest": [each.manifest_path for each in manifests],
                "data": [each.file_path for each in entries if not each.content.value],
                "deletes": [each.file_path for each in entries if each.content.value],
            }
            for kind, paths in of_kind.items():
                for path in paths:
                    name = str(Path(path.removeprefix("file://")).relative_to(self.lake.folder))
                    found.setdefault(kind, []).append(name)
        return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Damaged:
    return Damaged(tmp_path_factory.mktemp("damage") / "lake")


def readers(info: TableInfo, at: int, stop: int) -> dict:
    """Return what reads a table, by name; each gets a storage of its own, with nothing kept."""
    key = (None, 0)

    def source(storage):
        return storage.create_lake_source(info)

    def rows(storage, where=None, names=("id", "__offset"), **options):
        found = source(storage)
        batches = [batch for _, batch in found.read(found.plan(at, where=where, **options), list(names), **options)]
        return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)

    def fetched(storage, start=0):
        runs = storage.create_fluss_log_source(info).fetch_log_records(FetchContext(start, stop, *key, at, None))
        return [(run.offsets.to_pylist(), run.rows.to_pylist()) for run in runs]

    def looked_up(storage):
        context = LookupContext(*key, EPOCH_MS + 100, at)
        return storage.create_fluss_log_source(info).lookup_log_offset_by_timestamp(context)

    def upkeep(storage):
        return storage.create_lake_maintenance(info, clock_at_now())

    def compacted(storage):
        plan = upkeep(storage).plan_compaction(force=True)
        results = [storage.compact(info, json.loads(json.dumps(task))) for task in plan.tasks]
        upkeep(storage).commit_compaction(plan, results, summary(offsets=[(None, 0, 1, 1)]))
        newest = storage.access.load_table(info.path).metadata.current_snapshot_id
        found = source(storage)
        return sorted(
            (tuple(row.values()) for _, batch in found.read(found.plan(newest), list(info.schema.names)) for row in batch.to_pylist()),
            key=repr,
        )  # fmt: skip

    def committed(storage):
        committer = storage.create_lake_tiering_factory().create_lake_committer(CommitterInitContext(info, "r"))
        committer.missing_lake_snapshot(None)
        committer.commit(committer.to_committable([]), at, summary())
        return True

    def expired(storage):
        clock = clock_at_now()
        clock.advance(10 * 3_600_000)
        maintenance = storage.create_lake_maintenance(info, clock)
        maintenance.expire_snapshots(older_than_ms=clock.now_ms(), keep=1, protected=frozenset(), partition_ids={})
        return rows(storage)

    return {
        "scan": rows,
        "where": lambda storage: rows(storage, GreaterThanOrEqual("id", 20)),
        "stop": lambda storage: rows(storage, stops={key: 50}),
        "text": lambda storage: rows(storage, names=info.schema.names),
        "count": lambda storage: source(storage).count(source(storage).plan(at)),
        "count to a stop": lambda storage: source(storage).count(
            source(storage).plan(at, stops={key: 50}), stops={key: 50}
        ),
        "changelog": fetched,
        "changelog from": lambda storage: fetched(storage, 40),
        "lookup": looked_up,
        "earliest": lambda storage: storage.create_fluss_log_source(info).earliest_offset(*key, at),
        "files": lambda storage: [(each.content, each.rows, each.min_offset) for each in upkeep(storage).files()],
        "snapshots": lambda storage: [(each.rows, each.offsets) for each in upkeep(storage).snapshots()],
        "schemas": lambda storage: upkeep(storage).schemas(),
        "orphans": lambda storage: upkeep(storage).remove_orphan_files(older_than_ms=2**62, dry_run=True),
        "compaction": compacted,
        "commit": committed,
        "expiry": expired,
    }


def damage(path: Path, way: str, rng: random.Random) -> str:
    """Damage a file; return what was done."""
    data = path.read_bytes()
    match way:
        case "deleted":
            path.unlink()
            return way
        case "emptied":
            path.write_bytes(b"")
            return way
        case "cut":
            at = rng.randrange(1, len(data))
            path.write_bytes(data[:at])
            return f"cut at {at} of {len(data)}"
        case _:
            at = rng.randrange(len(data))
            with_what = rng.choice([0xFF, 1 << rng.randrange(8)])
            path.write_bytes(data[:at] + bytes([data[at] ^ with_what]) + data[at + 1 :])
            return f"flipped {with_what:#x} at {at} of {len(data)}"


#: These change the table: each begins with a copy of its own.
WRITERS = ("compaction", "commit", "expiry")


class Matrix:
    """The tables as they are when well, and what their readers then say."""

    def __init__(self, tables: Damaged) -> None:
        self.lake = lake = tables.lake
        self.well, self.case = (lake.folder.parent / name for name in ("well", "case"))
        shutil.copytree(lake.folder, self.well, dirs_exist_ok=True)
        self.names = tables.files()
        stops = {"log": 600, "keyed": tables.model.tiered[0]}
        self.readers = {
            info.path.table: readers(info, lake.load(info).metadata.current_snapshot_id, stops[info.path.table])
            for info in (tables.log, tables.keyed)
        }
        self.right = {table: self.answers(self.well, table, list(found)) for table, found in self.readers.items()}
        wrong = [each for found in self.right.values() for each in found.values() if isinstance(each, FlussError)]
        assert not wrong

    def answers(self, folder: Path, table: str, names: list[str]) -> dict:
        """Return what readers say of a table in a folder that takes the other's place."""
        found = {}
        fresh = False
        for name in sorted(names, key=WRITERS.__contains__):
            if not fresh or name in WRITERS:
                shutil.rmtree(self.lake.folder)
                shutil.copytree(folder, self.lake.folder)
                fresh = True
            try:
                found[name] = self.readers[table][name](IcebergLakeStorage(self.lake.properties))
            except FlussError as error:
                found[name] = error
        return found

    def run(self, rng: random.Random, positions: int, chosen: int) -> Counter:
        """Damage files of every kind in every way, cuts and flips at so many positions; ask so many readers each."""
        seen: Counter = Counter()
        for kind in KINDS:
            for way in WAYS:
                for _ in range(positions if way in {"flipped", "cut"} else 1):
                    self._one(rng, kind, way, chosen, seen)
        shutil.rmtree(self.lake.folder)
        shutil.copytree(self.well, self.lake.folder)
        return seen

    def _one(self, rng: random.Random, kind: str, way: str, chosen: int, seen: Counter) -> None:
        table = "keyed" if kind == "deletes" else rng.choice(list(self.readers))
        name = rng.choice([name for name in self.names[kind] if kind == "catalog" or f"/{table}-" in name])
        shutil.rmtree(self.case, ignore_errors=True)
        shutil.copytree(self.well, self.case)
        done = damage(self.case / name, way, rng)
        asked = rng.sample(sorted(self.right[table]), chosen)
        for reader, found in self.answers(self.case, table, asked).items():
            what = f"{kind} {done}: {name}: {reader}"
            seen[(kind, way, type(found).__name__ if isinstance(found, FlussError) else "exact")] += 1
            if isinstance(found, FlussError):
                assert not isinstance(found, InternalError), what
                assert "lake" in str(found), what
            else:
                assert found == self.right[table][reader] or reader == "orphans", what


@pytest.fixture(scope="module")
def matrix(tables) -> Matrix:
    return Matrix(tables)


@pytest.mark.slow
def test_damaged_files_are_never_read_as_something_else(matrix, seed):
    seen = matrix.run(random.Random(seed), positions=2, chosen=4)
    print(*sorted(seen.items()), sep="\n")
    assert sum(seen.values()) == len(KINDS) * (2 + 2 * 2) * 4


@pytest.mark.campaign
def test_many_damaged_files_are_never_read_as_something_else(matrix, seed):
    seen = matrix.run(random.Random(seed), positions=200, chosen=14)
    print(*sorted(seen.items()), sep="\n")
