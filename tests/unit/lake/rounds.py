"""Rounds of a primary-key table without a cluster: planned, written and committed step by step, with whatever comes between."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from fluss_lab.lake import CommitterInitContext
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits
from fluss_lab.lake.iceberg.commit.replay_start_tags import replay_tag
from fluss_lab.lake.iceberg.metadata.snapshot_builder import TagRequest, stage_replace
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, live_state, snapshot_of
from fluss_lab.lake.iceberg.table.layout import known_layout
from fluss_lab.lake.iceberg.write.delete_schema import read_events
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY
from fluss_lab.model.json_codec import from_plain
from tests.unit.lake.changelogs import Changelog, expected_rows, keyed_writer, snapshot_split, state_of, written
from tests.unit.lake.conftest import summary

RETENTION_MS = 7 * 24 * 3600 * 1000


@dataclass
class Round:
    """What was planned and written and is not committed yet."""

    planned: int | None
    results: list
    ends: dict[int, int]
    committer: Any
    commit_id: str = field(default_factory=lambda: uuid.uuid4().hex)


class KeyedLake:
    """A primary-key table in a lake beside the model of its buckets."""

    def __init__(self, lake, info, buckets: int = 1) -> None:
        self.lake = lake
        self.info = info
        key = tuple(info.descriptor.schema.primary_key)
        self.logs = {bucket: Changelog(info.schema.arrow_schema, key) for bucket in range(buckets)}
        self.tiered = dict.fromkeys(self.logs, 0)

    def change(self, rng: random.Random, count: int, keys: int = 40) -> None:
        bucket_of = BucketTransform(len(self.logs)).transform(LongType())
        for _ in range(count):
            number = rng.randrange(keys)
            bucket = bucket_of(number)
            assert bucket is not None
            log = self.logs[bucket]
            if rng.random() < 0.25:
                log.delete((number,))
            else:
                log.upsert({"id": number, "name": f"{number}-{rng.randrange(10**6)}"})

    def plan(self, splits: int = 1) -> Round:
        """Plan and write a round: each bucket's new records, cut into so many splits."""
        lake, info = self.lake, self.info
        lake.rounds += 1
        committer = lake.factory.create_lake_committer(CommitterInitContext(info, f"round{lake.rounds}"))
        planned = committer.current_snapshot_id()
        described = lake.factory.describe_buckets(info, [(None, bucket) for bucket in self.logs], planned)
        results: list[Any] = []
        ends: dict[int, int] = {}
        for bucket, log in self.logs.items():
            start, stop = self.tiered[bucket], log.end
            edges = sorted({start, stop, *(start + (stop - start) * cut // splits for cut in range(1, splits))})
            files = from_plain(list[OffsetFile], described.get((None, bucket), {}).get("files", []), "files")
            for low, high in pairwise(edges):
                options = {"split": len(results), "files": files, "alone": len(edges) == 2}
                results.append(written(lake, info, log.run(low, high), bucket=bucket, **options))
            ends[bucket] = stop
        return Round(planned, results, ends, committer)

    def summary(self, done: Round, **more: str) -> dict[str, str]:
        return summary(done.commit_id, [(None, bucket, end, 1) for bucket, end in done.ends.items()]) | more

    def commit(self, done: Round, **more: str) -> int:
        committable = done.committer.to_committable(done.results)
        snapshot_id = done.committer.commit(committable, done.planned, self.summary(done, **more))
        self.tiered |= done.ends
        return snapshot_id

    def round(self, splits: int = 1, **more: str) -> int:
        return self.commit(self.plan(splits), **more)

    def compact(self, bucket: int, *, ours: bool = True) -> int:
        """Rewrite a bucket whole, as we or as somebody else does it; a foreign one sets no tag."""
        lake, info = self.lake, self.info
        table = lake.load(info)
        planned = table.metadata.current_snapshot()
        state = state_of(lake, info).get((None, bucket), BucketFiles())
        log = self.logs[bucket]
        before = Changelog(log.schema, log.key, log.log[: self.tiered[bucket]], self._live(bucket))
        files = []
        if before.live:
            files = list(keyed_result(lake, info, before, bucket).files)
        removed = [each.file for each in (*state.data, *state.deletes)]
        given = {COMMIT_ID_KEY: uuid.uuid4().hex} | (self._carried(planned) if ours else {})
        kept = [replay_tag(planned.snapshot_id, RETENTION_MS)] if ours else []

        def stage(current):
            added = [(file, planned.sequence_number) for file in files]
            entries = lake.storage._entry_cache()
            return stage_replace(current, removed=removed, added=added, summary=given, tags=kept, entries=entries)

        return SnapshotCommits(lake.storage.access, info.path, "compact").commit(stage, planned.snapshot_id, given)

    def rows(self, bucket: int) -> pa.Table:
        """Return what the lake must hold of a bucket."""
        log = self.logs[bucket]
        tiered = Changelog(log.schema, log.key, log.log[: self.tiered[bucket]], self._live(bucket))
        return expected_rows(self.lake, self.info, tiered, bucket)

    def all_rows(self) -> pa.Table:
        return pa.concat_tables([self.rows(bucket) for bucket in self.logs])

    def replayed(self) -> dict[int, list[int]]:
        """Return the offsets of each bucket that the newest snapshot and the tagged ones hold, each once."""
        table = self.lake.load(self.info)
        ids = {ref.snapshot_id for ref in table.metadata.refs.values()}
        found: dict[int, set[int]] = {bucket: set() for bucket in self.logs}
        seen: set[str] = set()
        offset_name = f"_r{known_layout(self.info, table).system_ids[1]}"
        for snapshot_id in ids:
            snapshot = snapshot_of(table, self.info.path, snapshot_id)
            state = live_state(table, self.info.path, known_layout(self.info, table), snapshot, EntryCache())
            for (_, bucket), files in state.items():
                for file in [*(each.file for each in files.data), *(each.file for each in files.deletes)]:
                    if file.file_path in seen:
                        continue
                    seen.add(file.file_path)
                    found[bucket] |= set(self._offsets(table, file, offset_name))
        return {bucket: sorted(offsets) for bucket, offsets in found.items()}

    def paths(self) -> set[str]:
        """Return every data and delete file in the table's folder."""
        return {f"file://{path}" for path in (self.lake.folder / "warehouse").rglob("*.parquet")}

    def _offsets(self, table, file, name: str):
        if file.content.value:
            for batch in read_events(table.io, file):
                yield from batch.column(name).to_pylist()
        else:
            with table.io.new_input(file.file_path).open() as stream:
                yield from pa.parquet.read_table(stream, columns=["__offset"]).column(0).to_pylist()

    def _live(self, bucket: int) -> dict[tuple, int]:
        log = self.logs[bucket]
        live: dict[tuple, int] = {}
        for offset, record in enumerate(log.log[: self.tiered[bucket]]):
            key = tuple(record.row[name] for name in log.key)
            if record.kind.symbol in {"+I", "+U"}:
                live[key] = offset
            elif record.kind.symbol == "-D":
                del live[key]
        return live

    def _carried(self, planned) -> dict[str, str]:
        keep = ("commit-user", "fluss-bucket-offset", "fluss-replay-start")
        return {key: planned.summary[key] for key in keep if planned.summary[key] is not None}


def keyed_result(lake, info, log: Changelog, bucket: int):
    """Return the live rows of a bucket in files of their own."""
    writer = keyed_writer(lake, info, bucket=bucket, files=[])
    writer.write(snapshot_split(log))
    return writer.complete()


def tags(lake, info) -> dict[str, TagRequest]:
    """Return the tags of a table."""
    refs = lake.load(info).metadata.refs
    return {
        name: TagRequest(name, ref.snapshot_id, ref.max_ref_age_ms)
        for name, ref in refs.items()
        if ref.snapshot_ref_type.value == "tag"
    }


def starts(text: str) -> dict[tuple, int]:
    """Return replay starts by partition and bucket."""
    return {(each.get("partition_name"), each["bucket"]): each["offset"] for each in json.loads(text)}
