"""One table in a cluster of its own, all that may be done to it, and what is known of it."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.lake import LakeStorage
from fluss_lab.lake.snapshot_summary import COMMIT_USER_KEY
from fluss_lab.model import LakeSnapshot, TableBucket
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.across.edge import Edge
from tests.across.held_scanners import SCANNING, HeldScanners
from tests.across.oracle import Moment, first_at
from tests.across.program import Step
from tests.across.sizes import small_sizes
from tests.crash.history import BucketLog, Place
from tests.crash.kill_image import copy_as_killed
from tests.crash.scene import CUT, DAYS_AHEAD_MS, HOURS_AHEAD_MS, TAKEOVER, Scene
from tests.readers import foreign
from tests.readers.engines import FASTEST
from tests.readers.lake_files import replay_starts, tiered_ends

#: Segments of a few batches, so that they roll; nothing is done by the clock, only when a step says so.
OPTIONS: Final = {
    **TAKEOVER,
    "log.segment.file-size": "2kb",
    "log.index.interval-size": "1kb",
    "remote.log.task-interval-duration": "1d",
    "kv.snapshot.interval": "1d",
    "log.retention.check-interval": "1d",
    "auto-partition.check.interval": "1d",
    "metrics.reporter.prometheus.port": "-1",
}
CLIENT: Final = {"client.request-timeout": "60s", "client.scanner.log.fetch.wait-max-time": "50ms"}
#: A fetch answers a batch or two; some tails are too long for a file of theirs.
SMALL_CLIENT: Final = {**CLIENT, "client.scanner.log.fetch.max-bytes": "1kb", "client.spark.tail-file-size-max": "4kb"}
FAR_MS: Final = 400 * 24 * 3_600_000
COLUMNS_ADDED_MAX: Final = 4
FROZEN_MAX: Final = 2
#: Properties that make another sort of table of any kind. In `late` ones the lake is switched on only later, by
#: a step; of `small` ones readers take the ways of large tables.
SORTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "usual": {},
    "late": {"table.datalake.enabled": False},
    "equality": {"table.datalake.delete-mode": "equality"},
    "small": {},
}


@dataclass(frozen=True)
class Kept:
    """A read point that somebody kept, as text, and what a read of it must give."""

    text: str
    moment: Moment


class World:
    """A table, and the steps that change it. Close it.

    Args:
        kind: Of `tests.crash.kinds.KINDS`.
        sort: Of `SORTS`.
        spark: Makes a Spark DataFrame of a scan or changelog, for the looks that want one.
        lake: Gives the cluster's options for its lake, of a folder for what lies on this machine; None: the default one.
    """

    def __init__(
        self,
        kind: str,
        sort: str = "usual",
        *,
        spark: Callable[[Any], Any] | None = None,
        lake: Callable[[Path], Mapping[str, str]] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fluss-lab-across-"))
        self.clock = MockClock()
        self.spark = spark
        self._sizes: AbstractContextManager[None] = small_sizes() if sort == "small" else nullcontext()
        client = SMALL_CLIENT if sort == "small" else CLIENT
        options = OPTIONS if lake is None else {**OPTIONS, **lake(self.folder / "beyond")}
        self.cluster = EmbeddedCluster(self.folder / "lab", options, self.clock, client=client)
        self.cluster.start()
        self.scene = Scene(self.cluster, kind, 0, "t", SORTS[sort])
        self.kind = self.scene.history.kind
        self.in_lake = sort != "late"
        self.sort = sort
        self.kept: list[Kept] = []
        #: When records went last with a partition that the lake did not hold; and the time of the last one of each bucket's.
        self.lost_ms = -1
        self.lost_times: list[int] = []
        #: Logs that drops of partitions shortened, each with what it was before.
        self._dropped: list[tuple[BucketLog, BucketLog]] = []
        self.snapshots: dict[int, Moment] = {}
        self.firsts: dict[Place, int] = {}
        self._known: dict[str, Any] = {}
        self.scanners = HeldScanners(self)
        self.follow()
        self._sizes.__enter__()

    def close(self) -> None:
        self._sizes.__exit__(None, None, None)
        self.scanners.close()
        self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def history(self) -> Any:
        return self.scene.history

    @property
    def logs(self) -> dict[Place, BucketLog]:
        found: dict[Place, BucketLog] = self.history.logs
        return found

    @property
    def columns(self) -> list[str]:
        found: list[str] = self.history.columns
        return found

    def reader(self) -> TableReader:
        return TableReader(self.cluster.connection, self.history.path, spark=self.spark)

    def now(self) -> Moment:
        """Return the table as it is."""
        return self.moment({place: len(log.events) for place, log in self.logs.items()}, "now")

    def at(self, moment_ms: int) -> Moment:
        """Return the table as it was: all records with a timestamp up to a time."""
        return replace(self.moment(self.offsets_at(moment_ms + 1), f"as of {moment_ms}"), moment_ms=moment_ms)

    def moment(self, stops: Mapping[Place, int], label: str) -> Moment:
        logs = {place: self.logs[place] for place in stops}
        return Moment(logs, dict(stops), tuple(self.columns), self.kind.is_keyed, dict(self.firsts), label)

    def whole(self, moment: Moment) -> Moment:
        """Return a moment with what was lost since by drops of partitions: a lake snapshot may have it still."""
        before = {id(log): then for log, then in reversed(self._dropped)}
        return replace(moment, logs={place: before.get(id(log), log) for place, log in moment.logs.items()})

    def edge_at(self, moment_ms: int, value: Any) -> Edge:
        """Return the place of a time, which is the begin of what is held where that is later."""
        offsets, earliest = self.offsets_at(moment_ms), self.earliest()
        clipped = {place: max(offset, earliest[place]) for place, offset in offsets.items()}
        early = any(self._may_miss(place, first, moment_ms) for place, first in earliest.items())
        return Edge(value, clipped, early, is_moment=True, time_ms=moment_ms if value == moment_ms else None)

    def _may_miss(self, place: Place, first: int, moment_ms: int) -> bool:
        """Return whether records of a time on may be gone: nobody knows the times of those that are."""
        events = self.logs[place].events
        return first > 0 and (first == len(events) or moment_ms <= events[first].timestamp_ms)

    def offsets_at(self, moment_ms: int) -> dict[Place, int]:
        return {place: first_at(log, moment_ms) for place, log in self.logs.items()}

    def times(self) -> list[int]:
        """Return the times of all records as of which the table can be read: none before something was lost with a partition."""
        found = {event.timestamp_ms for log in self.logs.values() for event in log.events}
        return sorted(each for each in found if each > self.lost_ms)

    def statuses(self) -> dict[Place, Any]:
        """Return what the cluster says of the buckets that it has."""
        return self._asked("statuses", self._statuses)

    def lake(self) -> LakeSnapshot | None:
        """Return what the cluster knows of the lake."""
        return self._asked("lake", self._lake)

    def tiered(self) -> dict[Place, int]:
        """Return how far each bucket is tiered, as the lake's own files say."""
        return self._asked("tiered", lambda: tiered_ends(self._table()) if self.lake() is not None else {})

    def replay_starts(self) -> dict[Place, int]:
        """Return from where on the lake can replay each bucket."""
        return self._asked("starts", lambda: dict(replay_starts(self._table())) if self.lake() is not None else {})

    def _asked(self, name: str, ask: Callable[[], Any]) -> Any:
        """Ask once between two changes."""
        if name not in self._known:
            self._known[name] = ask()
        return self._known[name]

    def changed(self) -> None:
        """Forget what was asked: something is being done to the table."""
        self._known = {}

    def _table(self) -> Any:
        return self._asked("table", self.scene.audit.table)

    def _statuses(self) -> dict[Place, Any]:
        found = self.cluster.connection.admin().buckets(self.history.info)
        return {(each.partition, each.bucket.bucket): each for each in found}

    def _lake(self) -> LakeSnapshot | None:
        try:
            return self.cluster.connection.admin().lake_snapshot(self.history.path)
        except LakeSnapshotNotFoundError:
            return None

    def earliest(self) -> dict[Place, int]:
        """Return from where on every record of each bucket is held, in the cluster or the lake."""
        held = {place: each.start_offset for place, each in self.statuses().items()}
        ends, starts = self.tiered(), self.replay_starts()
        found = {}
        for place, log in self.logs.items():
            start, end = held.get(place), ends.get(place, 0)
            begin = max(starts.get(place, 0), self.firsts.get(place, 0))
            if start is None:
                found[place] = min(begin, len(log.events))
            else:
                found[place] = min(start, begin) if end >= start else start
        return found

    # -- steps ---------------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Take a step, if the table is as it needs it."""
        self.scene.rng = self.history.rng = random.Random(step.seed)
        self.changed()
        try:
            if step.name in SCANNING:
                getattr(self.scanners, step.name)(self.scene.rng)
            else:
                getattr(self, f"_{step.name}")(step)
        finally:
            self.changed()

    def follow(self) -> None:
        """Learn what was written; every record must have the timestamp that the clock says."""
        known = {place: len(log.events) for place, log in self.logs.items()}
        for place, log in self.history.read().items():
            fresh = {event.timestamp_ms for event in log.events[known.get(place, 0) :]}
            assert fresh <= {self.clock.now_ms()}, (place, fresh, self.clock.now_ms())

    def _write(self, step: Step) -> None:
        self.history.write(step.size)
        self.follow()

    def _wait(self, _: Step) -> None:
        self.clock.advance(self.scene.rng.choice([1, 1, 2, 10, 1_000]))

    def _tier(self, _: Step) -> None:
        if self.in_lake:
            self._note(self.scene.tier())
            tiered = self.tiered()
            for place, held in self.statuses().items():
                end = len(self.logs[place].events) if place in self.logs else 0
                # Of a bucket that lost all its records before its first round there is nothing to tier.
                assert tiered.get(place, held.start_offset) == end, (place, tiered.get(place), end)

    def _tier_cut(self, _: Step) -> None:
        if self.in_lake:
            self._note(self.scene.tier(**CUT))

    def _note(self, report: Any) -> None:
        self.changed()
        lake = self.lake()
        if lake is not None:
            assert report.snapshot_id == lake.snapshot_id
            ends = {(each.partition, bucket.bucket): each.end for bucket, each in lake.offsets.items()}
            held = {place: end for place, end in ends.items() if place in self.logs}
            self.snapshots[lake.snapshot_id] = self.moment(held, f"at lake snapshot {lake.snapshot_id}")

    def _compact(self, _: Step) -> None:
        if self.in_lake and self.lake() is not None:
            self.scene.maintain("compact")

    def _expire(self, _: Step) -> None:
        self._upkeep("expire", HOURS_AHEAD_MS)

    def _expire_tags(self, _: Step) -> None:
        self._upkeep("expire", DAYS_AHEAD_MS)

    def _orphans(self, _: Step) -> None:
        self._upkeep("orphans", HOURS_AHEAD_MS)

    def _upkeep(self, action: str, ahead_ms: int) -> None:
        if self.in_lake and self.lake() is not None:
            self.scene.maintain(action, ahead_ms=ahead_ms)

    def _foreign(self, _: Step) -> None:
        """Somebody else compacts the lake table (one that can read it); our next round notices."""
        if not self.in_lake or self.lake() is None or self.sort == "equality":
            return
        self.scene.tier()
        table = self.scene.audit.table()
        if table.current_snapshot() is not None:
            foreign.compact(table, self.scene.rng)
        self.history.write(1)
        self.follow()
        self._note(self.scene.tier())

    def _retain(self, _: Step) -> None:
        """The cluster lets go of what it need not hold.

        Not while a lake that holds a part is switched off: then there would be a hole between the two for good.
        """
        if not self.in_lake and self.tiered():
            return
        tablet = self.cluster.tablet()
        for bucket in self._keyed_buckets():
            tablet.snapshot_now(bucket)
        tablet.apply_retention(self.clock.now_ms() + FAR_MS)
        self.changed()
        if not self.in_lake:
            self._note_losses()

    def _note_losses(self) -> None:
        """Without the lake, what retention drops is lost unless the lake has it already."""
        tiered = self.tiered()
        for place, each in self.statuses().items():
            if place in self.logs and each.start_offset > max(tiered.get(place, 0), self.firsts.get(place, 0)):
                self.firsts[place] = each.start_offset

    def _remote(self, _: Step) -> None:
        self.cluster.tablet().copy_to_remote()

    def _snapshot(self, _: Step) -> None:
        for bucket in self._keyed_buckets():
            self.cluster.tablet().snapshot_now(bucket)

    def _keyed_buckets(self) -> list[TableBucket]:
        return [each.bucket for each in self.statuses().values()] if self.kind.is_keyed else []

    def _restart(self, _: Step) -> None:
        self.cluster.restart()

    def _kill(self, _: Step) -> None:
        """What a process killed between two calls leaves is what lies in its folder now; the lake is nobody's process."""
        lab, image = self.folder / "lab", self.folder / "image"
        copy_as_killed(lab, image, without=["lake"])
        self.cluster.stop()
        for path in lab.iterdir():
            if path.name != "lake":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in image.iterdir():
            path.rename(lab / path.name)
        image.rmdir()
        self.cluster.start()

    def _add_column(self, _: Step) -> None:
        if len(self.history.added) < COLUMNS_ADDED_MAX:
            self.history.add_column()

    def _lake_switch(self, _: Step) -> None:
        self.in_lake = not self.in_lake
        admin = self.cluster.connection.admin()
        admin.alter_table(self.history.path, set={"table.datalake.enabled": self.in_lake})
        self.history.info = admin.table_info(self.history.path)

    def _drop_partition(self, _: Step) -> None:
        if not self.kind.partitioned_by:
            return
        history, rng = self.history, self.scene.rng
        live = sorted({place[0] for place in self.statuses() if place[0] is not None})
        lake = rng.random() < 0.5 or len(history.frozen) >= FROZEN_MAX
        names = [*live, *sorted(history.frozen)] if lake else live
        if not names:
            return
        name = rng.choice(names)
        ends = self.tiered()
        if (
            lake
            or not self.in_lake
            or any(ends.get(place, 0) < len(log.events) for place, log in self.logs.items() if place[0] == name)
        ):
            self.lost_ms = self.clock.now_ms()
        values, is_dropped = history.partition_values(name), name in history.frozen
        admin = self.cluster.connection.admin()
        admin.drop_partition(history.path, values, is_dropped, lake=lake, discard_untiered=True)
        history.model.drop_partition(name)
        history.frozen.discard(name)
        if not lake:
            history.frozen.add(name)
        for place in [each for each in self.logs if each[0] == name]:
            # In place: points that were kept learn of it.
            log = self.logs[place]
            self._dropped.append((log, BucketLog(list(log.events))))
            left = 0 if lake else ends.get(place, 0)
            self.lost_times += [event.timestamp_ms for event in log.events[max(left, self.firsts.get(place, 0)) :][-1:]]
            del log.events[left:]
            if lake or place not in ends:
                del self.logs[place]
                self.firsts.pop(place, None)

    def _audit(self, _: Step) -> None:
        """Hold the lake's files against the logs. After somebody else's commit only our next one makes them whole."""
        snapshot = self._table().current_snapshot() if self.lake() is not None else None
        if snapshot is not None and COMMIT_USER_KEY in str(snapshot.summary):
            self.scene.check(engines=FASTEST)

    def _keep(self, _: Step) -> None:
        """Keep a read point, of now or of a moment in the past."""
        rng, times = self.scene.rng, self.times()
        if times and rng.random() < 0.5:
            chosen = self.past(rng)
            if chosen is None or not self.is_within_reach(chosen[1]):
                return
            point, moment = self.reader().read_point(chosen[0]), replace(chosen[1], moment_ms=None)
        else:
            point, moment = self.reader().read_point(), self.now()
        # Where the first records were lost, a bucket has nothing before its first ones.
        stops = {place: max(stop, self.firsts.get(place, 0)) for place, stop in moment.stops.items()}
        self.kept.append(Kept(point.to_json(), replace(moment, stops=stops)))
        found = {place: stop for place, stop in point.stops.items() if stop}
        assert found == {place: stop for place, stop in stops.items() if stop}, (moment.label, found, stops)

    # -- choices -------------------------------------------------------------------------------------------------------

    def past(self, rng: random.Random) -> tuple[int, Moment] | None:
        """Return a time that is over, and the table as it was then; None when there is none."""
        times = self.times()
        if not times:
            return None
        moment_ms = min(rng.choice(times) + rng.choice([-1, 0, 0, 1]), self.clock.now_ms() - 1)
        if moment_ms < self.history.info.created_ms:
            return None
        return moment_ms, self.at(moment_ms)

    def snapshot(self, rng: random.Random) -> tuple[int, Moment] | None:
        """Return a lake snapshot that the cluster knows, and the table as it was there; None when there is none."""
        known = []
        for snapshot_id, moment in self.snapshots.items():
            if any(self.logs.get(place) is not log for place, log in moment.logs.items()):
                continue
            try:
                self.cluster.connection.admin().lake_snapshot(self.history.path, snapshot_id)
            except LakeSnapshotNotFoundError:
                continue
            known.append((snapshot_id, replace(moment, columns=tuple(self.columns))))
        return rng.choice(known) if known else None

    def is_within_reach(self, moment: Moment) -> bool:
        """Return whether a read at a moment must succeed: records may be gone, or what ended rows since."""
        if moment.lost:
            return False
        if self.kind.is_keyed:
            return not self._beyond(moment)
        # Of a log table, only what retention took while the lake was off is gone.
        return all(self.firsts.get(place, 0) <= moment.firsts.get(place, 0) for place in moment.stops)

    def _beyond(self, moment: Moment) -> list[Place]:
        """Return the buckets whose rows of then no longer available."""
        held = {place: each.start_offset for place, each in self.statuses().items()}
        starts, ends = self.replay_starts(), self.tiered()
        found = []
        for place, stop in moment.stops.items():
            start = held.get(place)
            first = starts.get(place, 0) if ends.get(place, 0) or start is None else start
            # Of a time, nobody knows whether records before the first one held were before it too.
            if start != 0 and (stop < first or (moment.moment_ms is not None and stop == first > 0)):
                found.append(place)
        return found

    def without_records(self, moment: Moment) -> list[Place]:
        """Return the buckets of a primary-key table that were never tiered, and whose first records left the cluster."""
        ends = self.tiered()
        held = {place: each.start_offset for place, each in self.statuses().items()}
        return [place for place in moment.stops if held.get(place) and place not in ends] if self.kind.is_keyed else []

    @property
    def storage(self) -> LakeStorage:
        return self.scene.storage

    def describe(self) -> str:
        """Return how the table stands, for people who look at a failure."""
        held = {str(place): (each.start_offset, each.end_offset) for place, each in self.statuses().items()}
        return json.dumps(
            {
                "held": held,
                "tiered": {str(place): end for place, end in self.tiered().items()},
                "replay starts": {str(place): start for place, start in self.replay_starts().items()},
                "kept": [ReadPoint.from_json(each.text).moment_ms for each in self.kept],
            }
        )
