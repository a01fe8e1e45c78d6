"""The progress of a round: stage, tasks, rows and bytes, in all and by bucket."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from fluss_lab.model import TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.tiering.round.round_report import STAGES
from fluss_lab.tiering.round.split_generator import TieringLogSplit, TieringSplit
from fluss_lab.tiering.task.tiering_task import TaskNews

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BucketProgress:
    """How far a round is with one bucket.

    Attributes:
        partition: Name of its partition, or None.
        bucket: Its number.
        planned: Log records that the round is going to write; rows of a snapshot are not known before they are read, and
            not counted.
        rows: Records that tasks have written, counted when a task ends.
        size_bytes: Bytes of the files of these tasks.
    """

    partition: str | None
    bucket: int
    planned: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RoundState:
    """How far a round is.

    Attributes:
        stage: ``plan``, ``write``, ``commit``, ``maintain`` or ``finish``.
        tasks_done: Tasks of the stage that ended.
        tasks: Tasks of the stage; 0 for a stage without any.
        planned: Log records that the round is going to write.
        rows: Records written so far.
        size_bytes: Bytes of their files.
        seconds: Since the round began.
        buckets: The buckets that lag, by partition and number.
        stages: Seconds of each stage that ended.
        table: Of which table the round is; None before it was given out.
        epoch: Its tiering epoch, likewise.
    """

    stage: str
    tasks_done: int = 0
    tasks: int = 0
    planned: int = 0
    rows: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    buckets: tuple[BucketProgress, ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict)
    table: TablePath | None = None
    epoch: int | None = None

    def __str__(self) -> str:
        tasks = f" {self.tasks_done}/{self.tasks}" if self.tasks else ""
        return f"{self.stage}{tasks}: {self.rows:,} of {self.planned:,} rows, {self.size_bytes / 1e6:,.1f} MB"


#: Called now and then, from any thread. What it raises is noted and changes nothing.
RoundProgress: TypeAlias = Callable[[RoundState], None]


class RoundMeter:
    """Keeps the state of one round and the seconds of its stages, and passes every change to a listener. Safe for threads.

    Args:
        listener: Called with the state; None: no one is.
    """

    def __init__(self, listener: RoundProgress | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        self._stage = "plan"
        self._done = self._tasks = 0
        self._splits: Sequence[TieringSplit] = ()
        self._written: dict[int, TaskNews] = {}
        self._planned: dict[BucketKey, int] = {}
        self._seconds: dict[str, float] = {}
        self._table: TablePath | None = None
        self._epoch: int | None = None

    def name(self, table: TablePath, epoch: int) -> None:
        """Say which round it is; it is being planned."""
        self._table, self._epoch = table, epoch
        self._notify()

    @property
    def state(self) -> RoundState:
        """Return how far the round is now."""
        with self._lock:
            rows, sizes = dict.fromkeys(self._planned, 0), dict.fromkeys(self._planned, 0)
            for news in self._written.values():
                key = _bucket_of(self._splits[news.index])
                rows[key] += news.rows
                sizes[key] += news.size_bytes
            buckets = [
                BucketProgress(key[0], key[1], planned, rows[key], sizes[key]) for key, planned in self._planned.items()
            ]
            return RoundState(
                self._stage,
                self._done,
                self._tasks,
                sum(self._planned.values()),
                sum(rows.values()),
                sum(sizes.values()),
                time.monotonic() - self._began_s,
                tuple(buckets),
                dict(self._seconds),
                self._table,
                self._epoch,
            )

    def plan(self, splits: Sequence[TieringSplit]) -> None:
        """Take what the round is going to write, in the order of the tasks; a later plan replaces an earlier one."""
        planned: dict[BucketKey, int] = {}
        for split in splits:
            records = split.records if isinstance(split, TieringLogSplit) else 0
            planned[_bucket_of(split)] = planned.get(_bucket_of(split), 0) + records
        with self._lock:
            self._splits, self._written = tuple(splits), {}
            self._planned = dict(sorted(planned.items(), key=lambda each: (each[0][0] or "", each[0][1])))
        self.enter("write", len(splits))

    def enter(self, stage: str, tasks: int = 0) -> None:
        """Begin a stage of so many tasks."""
        with self._lock:
            self._stage, self._done, self._tasks = stage, 0, tasks
        self._notify()

    @contextmanager
    def time_stage(self, stage: str) -> Iterator[None]:
        """Count the block's seconds towards a stage."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.monotonic() - began_s

    def seconds(self) -> dict[str, float]:
        """Return the seconds of every stage, and in all."""
        stages = {name: self._seconds.get(name, 0.0) for name in STAGES[:-1]}
        return stages | {"total": time.monotonic() - self._began_s}

    def add_written(self, done: int, total: int, ended: Sequence[TaskNews] = ()) -> None:
        """Count the tasks that write: a `TaskProgress`. One that ended is counted once, however often it is reported."""
        with self._lock:
            self._done, self._tasks = done, total
            self._written.update({news.index: news for news in ended if news.index < len(self._splits)})
        self._notify()

    def count_tasks(self, done: int, total: int, ended: Sequence[TaskNews] = ()) -> None:
        """Count the tasks of another stage: a `TaskProgress` that counts no rows."""
        del ended
        with self._lock:
            self._done, self._tasks = done, total
        self._notify()

    def _notify(self) -> None:
        if self._listener is None:
            return
        try:
            self._listener(self.state)
        except Exception:
            log.debug("a listener of the round's progress failed", exc_info=True)


def _bucket_of(split: TieringSplit) -> BucketKey:
    return split.partition_name, split.table_bucket.bucket
