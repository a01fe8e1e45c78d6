"""The tests of commits, of killed ones too: a round is in the lake whole or not at all, once, and only where it was planned."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab.errors import CommitConflictError, InternalError, LakeSnapshotNotFoundError, TableNotFoundError
from fluss_lab.lake import SupportsEmptyBuckets
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, TIERING_EPOCH_KEY
from fluss_lab.model import LakeOffset, TableInfo
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedHistory
from fluss_lab.testing.conformance.kit import (
    COLUMNS,
    EPOCH_MS,
    LakeFormat,
    LakeKit,
    LakeWrite,
    partition_id,
    records,
    summary,
)
from fluss_lab.testing.conformance.writer_process import commit_elsewhere

#: Tries of one committer among several; each conflict is another one's success, so they end.
_TRIES = 100


def commit_at(
    kit: LakeKit, info: TableInfo, planned: int | None, *written: LakeWrite, commit_id: str | None = None
) -> int:
    """Commit on condition that a snapshot is still the newest."""
    with kit.committer(info) as committer:
        committable = committer.to_committable([each.result for each in written])
        return committer.commit(committable, planned, summary(info, *written, commit_id=commit_id))


class CommitConformance(LakeFormat):
    """What `LakeCommitter` promises."""

    def test_readers_see_all_buckets_of_a_round_at_once(self, kit: LakeKit) -> None:
        """One commit makes one snapshot of all results, in whatever order they come."""
        info = kit.table(buckets=3)
        written = [kit.write(info, [records(info, 3 + bucket)], bucket) for bucket in (2, 0, 1)]
        written.append(kit.write(info, [records(info, 2, 3)], 0))
        snapshot = kit.commit(info, *written)
        assert kit.newest(info) == snapshot > 0
        assert kit.offsets(info, snapshot) == {0: [*range(5)], 1: [*range(4)], 2: [*range(5)]}

    def test_nothing_is_seen_before_the_commit(self, kit: LakeKit) -> None:
        """Written files are not part of the table."""
        info = kit.table()
        snapshot = kit.append(info, 3)
        kit.write(info, [records(info, 3, 3)])
        kit.writer(info).write(records(info, 3, 3))
        assert kit.newest(info) == snapshot
        assert kit.offsets(info, snapshot) == {0: [0, 1, 2]}

    def test_older_snapshots_stay_as_they_were(self, kit: LakeKit) -> None:
        """Each snapshot is read as it was committed."""
        info = kit.table()
        snapshots = [kit.append(info, 2, first) for first in (0, 2, 4)]
        assert len(set(snapshots)) == 3
        assert [kit.offsets(info, each)[0] for each in snapshots] == [[*range(end)] for end in (2, 4, 6)]

    def test_a_stale_plan_is_refused(self, kit: LakeKit) -> None:
        """A commit planned at another than the newest snapshot changes nothing; planned again, it succeeds."""
        info = kit.table()
        late = kit.write(info, [records(info, 5)])
        first = kit.append(info, 1)
        second = kit.append(info, 1, 1)
        for planned in (None, first):
            with pytest.raises(CommitConflictError):
                commit_at(kit, info, planned, late)
        with pytest.raises(CommitConflictError):
            commit_at(kit, info, second + 1_000_000, late)
        assert kit.newest(info) == second
        assert kit.rows(info, second).num_rows == 2

    def test_columns_that_changed_meanwhile_do_not_matter(self, kit: LakeKit) -> None:
        """The condition is the newest snapshot, not the table's definition."""
        from fluss_lab.testing.conformance.catalogs import alter

        info = kit.table()
        planned = kit.append(info, 1)
        written = kit.write(info, [records(info, 2, 1)])
        kit.catalog.alter_table(alter(info, extra="int"))
        assert kit.rows(info, commit_at(kit, info, planned, written)).num_rows == 3

    def test_the_same_commit_again_is_the_snapshot_that_it_made(self, kit: LakeKit) -> None:
        """A commit id that landed since the plan is recognised, whatever came after it, and not applied again."""
        info = kit.table()
        written = kit.write(info, [records(info, 3)])
        first = commit_at(kit, info, None, written, commit_id="mine")
        assert commit_at(kit.again(), info, None, written, commit_id="mine") == first
        newest = kit.append(info, 2, 3)
        assert commit_at(kit, info, None, written, commit_id="mine") == first
        assert kit.newest(info) == newest
        assert kit.rows(info, newest).num_rows == 5

    def test_a_commit_needs_an_id(self, kit: LakeKit) -> None:
        """Without one it could never be looked up."""
        info = kit.table()
        with kit.committer(info) as committer, pytest.raises(InternalError, match=COMMIT_ID_KEY):
            committer.commit(committer.to_committable([]), None, {})

    def test_an_empty_commit_fences(self, kit: LakeKit) -> None:
        """It keeps the rows, moves offsets, and makes every commit planned before it fail."""
        info = kit.table()
        planned = kit.append(info, 3)
        late = kit.write(info, [records(info, 2, 3)])
        moved = LakeWrite(None, None, 0, 9, EPOCH_MS + 8)
        with kit.committer(info) as committer:
            fence = committer.commit(committer.to_committable([]), planned, summary(info, moved))
        assert fence != planned
        with pytest.raises(CommitConflictError):
            commit_at(kit, info, planned, late)
        assert kit.rows(info, fence).num_rows == 3
        found = kit.missing(info, planned)
        assert found is not None
        assert found.offsets == {(None, 0): LakeOffset(9, EPOCH_MS + 8)}

    def test_an_empty_table_can_be_fenced(self, kit: LakeKit) -> None:
        """The first snapshot may be empty."""
        info = kit.table()
        fence = kit.commit(info)
        assert kit.newest(info) == fence
        assert kit.rows(info, fence).num_rows == 0

    def test_properties_come_back(self, kit: LakeKit) -> None:
        """A snapshot says what it was committed with; offsets are read from it, partitions by name and id."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"], buckets=2)
        written = [
            kit.write(info, [records(info, 3, partition=name)], bucket, name) for name, bucket in [("a", 0), ("b", 1)]
        ]
        snapshot = kit.commit(info, *written, commit_id="c1", **{TIERING_EPOCH_KEY: "17", "some-note": "é"})
        found = kit.again().missing(info, None)
        assert found is not None
        assert found.snapshot_id == snapshot
        assert {key: found.properties[key] for key in (COMMIT_ID_KEY, TIERING_EPOCH_KEY, "some-note")} == {
            COMMIT_ID_KEY: "c1",
            TIERING_EPOCH_KEY: "17",
            "some-note": "é",
        }
        last = EPOCH_MS + 2
        assert found.offsets == {("a", 0): LakeOffset(3, last, "a"), ("b", 1): LakeOffset(3, last, "b")}
        assert found.partition_ids == {name: partition_id(name) for name in ("a", "b")}

    def test_what_the_cluster_does_not_know_is_found(self, kit: LakeKit) -> None:
        """The newest snapshot since the known one, with the offsets of all in between; none when it is known."""
        info = kit.table(buckets=2)
        first = kit.append(info, 3, bucket=0)
        second = kit.append(info, 2, 3, bucket=0)
        third = kit.append(info, 4, bucket=1)
        assert kit.missing(info, third) is None
        for known, ends in [(None, {0: 5, 1: 4}), (first, {0: 5, 1: 4}), (second, {1: 4})]:
            found = kit.missing(info, known)
            assert found is not None
            assert found.snapshot_id == third
            assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == ends
        with pytest.raises(LakeSnapshotNotFoundError):
            kit.missing(info, third + 1_000_000)

    def test_the_newest_of_ours_is_found_for_repair(self, kit: LakeKit) -> None:
        """It speaks of every bucket that was ever committed."""
        info = kit.table(buckets=2)
        kit.append(info, 3, bucket=0)
        last = kit.append(info, 4, bucket=1)
        with kit.committer(info) as committer:
            found = committer.newest_lake_snapshot()
        assert found is not None
        assert found.snapshot_id == last
        assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == {0: 3, 1: 4}

    def test_offsets_of_many_buckets(self, kit: LakeKit) -> None:
        """A long property is kept whole."""
        info = kit.table()
        entries = [{"bucket": bucket, "offset": 2**40 + bucket, "max_timestamp": EPOCH_MS} for bucket in range(2000)]
        kit.commit(info, **{BUCKET_OFFSET_KEY: json.dumps(entries)})
        found = kit.missing(info, None)
        assert found is not None
        assert [found.offsets[None, bucket].end for bucket in range(2000)] == [2**40 + bucket for bucket in range(2000)]

    def test_abort_removes_no_file_in_use(self, kit: LakeKit) -> None:
        """Files of committed results stay, whichever snapshot they are of; aborting twice is fine; nothing is raised."""
        info = kit.table()
        kept = kit.write(info, [records(info, 3)])
        kit.commit(info, kept)
        last = kit.append(info, 2, 3)
        lost = kit.write(info, [records(info, 2, 5)])
        with kit.committer(info) as committer:
            for _ in range(2):
                committer.abort([kept.result, lost.result])
            committer.abort([])
        assert kit.offsets(info, last) == {0: [0, 1, 2, 3, 4]}
        # The round is written anew.
        assert kit.offsets(info, kit.append(info, 2, 5)) == {0: [*range(7)]}

    def test_a_writer_that_gives_up(self, kit: LakeKit) -> None:
        """Aborting before, amid and after writing raises nothing and leaves the table alone."""
        info = kit.table()
        snapshot = kit.append(info, 1)
        kit.writer(info).abort()
        for count in (1, 200_000):
            writer = kit.writer(info)
            writer.write(records(info, 1, 1) if count == 1 else records(info, 5_000, 1))
            writer.abort()
        writer = kit.writer(info)
        writer.write(records(info, 3, 1))
        writer.complete()
        writer.abort()
        assert kit.newest(info) == snapshot
        assert kit.rows(info, snapshot).num_rows == 1

    def test_two_attempts_at_a_split_do_not_meet(self, kit: LakeKit) -> None:
        """A repeated or speculative task writes files of its own; either one is committed, the other removed."""
        info = kit.table()
        context = kit.context(info, split=0)
        writers = [kit.factory.create_lake_writer(context) for _ in range(2)]
        for writer in writers:
            writer.write(records(info, 4))
        first, second = (LakeWrite(writer.complete(), None, 0, 4, EPOCH_MS + 3) for writer in writers)
        with kit.committer(info) as committer:
            committer.abort([first.result])
        assert kit.offsets(info, kit.commit(info, second)) == {0: [0, 1, 2, 3]}

    def test_what_cannot_be_one_round_is_refused(self, kit: LakeKit) -> None:
        """Two results with one offset, and another table's result, are errors."""
        info = kit.table()
        first, second = (kit.write(info, [records(info, 5, at)]) for at in (0, 4))
        with kit.committer(info) as committer, pytest.raises(InternalError):
            committer.to_committable([second.result, first.result])
        stranger = kit.table(name="other", table_id=8)
        with kit.committer(stranger) as committer, pytest.raises(InternalError):
            committer.to_committable([first.result])

    def test_offsets_that_do_not_ascend_are_refused(self, kit: LakeKit) -> None:
        """A writer is given records in order; anything else is an error."""
        info = kit.table()
        writer = kit.writer(info)
        writer.write(records(info, 5))
        with pytest.raises(InternalError):
            writer.write(records(info, 5, 4))
        writer.abort()

    def test_a_table_that_is_gone(self, kit: LakeKit) -> None:
        """Nothing is committed into the void."""
        info = kit.table()
        written = kit.write(info, [records(info, 3)])
        kit.catalog.drop_table(info.path, info.table_id)
        with kit.committer(info) as committer:
            for call in (
                committer.current_snapshot_id,
                lambda: committer.missing_lake_snapshot(None),
                lambda: committer.commit(committer.to_committable([written.result]), None, summary(info, written)),
                lambda: kit.factory.describe_table(info),
            ):
                with pytest.raises(TableNotFoundError):
                    call()
            committer.abort([written.result])

    def test_concurrent_committers_make_one_line(self, kit: LakeKit, rng: random.Random) -> None:
        """Each plans, commits, and plans again after a conflict; no commit gets lost or doubled."""
        info = kit.table(buckets=3)
        pauses = [rng.randrange(3) for _ in range(3)]

        def work(bucket: int) -> None:
            mine = kit.again()
            for turn in range(3 + pauses[bucket]):
                for _ in range(_TRIES):
                    planned = mine.newest(info)
                    written = mine.write(info, [records(info, 2, turn * 2)], bucket)
                    try:
                        commit_at(mine, info, planned, written)
                        break
                    except CommitConflictError:
                        with mine.committer(info) as committer:
                            committer.abort([written.result])
                else:
                    raise AssertionError(f"bucket {bucket}: {_TRIES} conflicts")

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(work, bucket) for bucket in range(3)]:
                done.result()
        newest = kit.newest(info)
        assert newest is not None
        assert kit.offsets(info, newest) == {bucket: [*range(2 * (3 + pauses[bucket]))] for bucket in range(3)}
        found = kit.missing(info, None)
        assert found is not None
        assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == {
            bucket: 2 * (3 + pauses[bucket]) for bucket in range(3)
        }

    def test_buckets_are_emptied(self, kit: LakeKit) -> None:
        """Rows of some buckets go and others stay, conditional and recognised like a commit of files."""
        if not isinstance(kit.storage, SupportsEmptyBuckets):
            pytest.skip(f"format {kit.format_name!r} does not empty buckets")
        info = kit.table(buckets=3)
        for bucket in range(3):
            planned = kit.append(info, 3, bucket=bucket)
        properties = summary(info, commit_id="empty")
        late = kit.write(info, [records(info, 1, 3)])
        buckets = [(None, 0), (None, 2)]
        with pytest.raises(CommitConflictError):
            kit.storage.empty_buckets(info, buckets, None, properties)
        snapshot = kit.storage.empty_buckets(info, buckets, planned, properties)
        assert kit.offsets(info, snapshot) == {1: [0, 1, 2]}
        assert kit.storage.empty_buckets(info, buckets, planned, properties) == snapshot
        with pytest.raises(CommitConflictError):
            commit_at(kit, info, planned, late)
        found = kit.missing(info, planned)
        assert found is not None
        assert found.snapshot_id == snapshot


class KillConformance(KeyedChecks):
    """What durable and atomic mean: at each of the format's `kill_points` a process is killed."""

    def test_a_log_tables_round_that_dies(self, kit: LakeKit) -> None:
        """Killed at each point; the next round looks whether it happened, and goes on from there."""
        info = kit.table()
        end = 0
        for point in self.kill_points:
            known = kit.newest(info)
            offsets = summary(info, LakeWrite(None, None, 0, end + 4, 1), commit_id=f"at {point}")
            runs = [records(info, 4, end)]
            lived = commit_elsewhere(kit, kit.context(info), runs, offsets, {point: "kill"})
            assert not lived, f"nothing passes the failpoint {point!r}"
            found = kit.missing(info, known)
            if found is not None:
                assert found.properties[COMMIT_ID_KEY] == f"at {point}"
                end += 4
            snapshot = kit.append(info, 2, end)
            end += 2
            assert kit.offsets(info, snapshot) == {0: [*range(end)]}
            assert kit.rows(info, snapshot)["id"].to_pylist() == [*range(end)]

    def test_a_keyed_tables_round_that_dies(self, kit: LakeKit) -> None:
        """The same with changes of rows."""
        self.needs_keyed_tables()
        history = KeyedHistory(self.keyed_table(kit))
        info = history.info
        done = 0
        for number, point in enumerate(self.kill_points):
            known = kit.newest(info)
            for key in history.keys[:4]:
                history.upsert(key, x=float(number))
            history.delete(history.keys[number % 4])
            offsets = summary(info, LakeWrite(None, None, 0, history.end, 1))
            runs = history.records(done, history.end)
            assert not commit_elsewhere(kit, kit.context(info), runs, offsets, {point: "kill"}), point
            if kit.missing(info, known) is not None:
                done = history.end
            history.upsert(history.keys[5], name=point)
            kit.commit(info, kit.write(info, history.records(done, history.end)))
            done = history.end
            self.check_state(kit, [history])
        self.check_changes(kit, history)

    def test_every_kill_point_is_said(self) -> None:
        """A format that names none has not been killed: it should pass `fluss_lab.failpoints.failpoint` where it counts."""
        if not self.kill_points:
            pytest.skip(f"format {self.format_name!r} names no kill points")
        assert len(set(self.kill_points)) == len(self.kill_points)
