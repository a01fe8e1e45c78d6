"""A whole lab with a log table and a primary-key table whose rows are in log, remote storage and lake, and all that can be asked.

One lab is filled; for each case it is laid anew at the same place (the lake names its files by absolute paths), damaged and asked.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import FlussError
from fluss_lab.model import OffsetSpec, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.scan import Scan
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

LOGGED, KEYED = TablePath("db", "logged"), TablePath("db", "keyed")
PATHS: Final = (LOGGED, KEYED)
TYPES: Final = {"id": "bigint not null", "name": "string"}
KEYS: Final = 30
STEP_MS: Final = 1_000
OPTIONS: Final = {
    "log.segment.file-size": "2kb",
    "remote.log.task-interval-duration": "0s",
    "kv.snapshot.interval": "1h",
    "log.retention.check-interval": "1h",
}
CLIENT: Final = {"client.request-timeout": "3s"}
PROPERTIES: Final = {
    "table.datalake.enabled": True,
    "table.datalake.auto-maintenance": False,
    "table.log.tiered.local-segments": 1,
    "table.log.ttl": "10s",
}
#: How long a subscription may be silent before it counts as an error: it must not only give less.
SILENCE_S: Final = 4.0
#: Not read as data by anybody: locks, texts for people.
_UNREAD: Final = ("server.lock", "start.lock", "server.log", "server.out", "CACHEDIR.TAG")
_VARIABLE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|\d+")

Answer = Any


class WholeLab:
    """The lab, filled, and its answers as they must be.

    Args:
        folder: For the lab and its kept copy.
    """

    def __init__(self, folder: Path) -> None:
        self.place, self._kept = folder / "lab", folder / "kept"
        self._clock = MockClock()
        with self._cluster() as cluster:
            self._fill(cluster)
            self._clock.advance(STEP_MS)
            self.times = [self._clock.now_ms() - STEP_MS * back for back in (1, 4, 7)]
            self.expected = dict(self._answers(cluster))
        shutil.copytree(self.place, self._kept)

    def _cluster(self) -> EmbeddedCluster:
        return EmbeddedCluster(self.place, OPTIONS, self._clock, client=CLIENT)

    def _fill(self, cluster: EmbeddedCluster) -> None:
        admin, storage = cluster.connection.admin(), cluster.connection.lake_storage()
        admin.create_database("db")
        admin.create_table(LOGGED, make_descriptor(TYPES, bucket_key=["id"], buckets=2, properties=PROPERTIES))
        admin.create_table(KEYED, make_descriptor(TYPES, primary_key=["id"], buckets=2, properties=PROPERTIES))
        for step in range(9):
            for path in PATHS:
                rows = [{"id": number, "name": f"{step}-{number}-" + "x" * 20} for number in range(step % 3, KEYS, 2)]
                if path == LOGGED:
                    with cluster.connection.append_writer(path) as writer:
                        writer.append(rows)
                else:
                    with cluster.connection.upsert_writer(path) as writer:
                        writer.upsert(rows)
                if step in {2, 5}:
                    info = cluster.connection.table_info(path)
                    run_round(cluster.connection, storage, LocalTieringExecutor(), table_id=info.table_id)
            self._clock.advance(STEP_MS)
            if step == 6:
                self._spread(cluster)

    def _spread(self, cluster: EmbeddedCluster) -> None:
        """Have key-value snapshots and remote copies made, and what is only in the lake leave the cluster."""
        tablet = cluster.tablet()
        for bucket in tablet._store.all(cluster.connection.table_info(KEYED).table_id):
            tablet.snapshot_now(bucket.id)
        assert tablet.copy_to_remote() > 0
        assert tablet.apply_retention(self._clock.now_ms() + 4 * STEP_MS) >= 0

    # -- asking --------------------------------------------------------------------------------------------------------

    def _answers(self, cluster: EmbeddedCluster) -> Iterator[tuple[str, Answer]]:
        for name, ask in self._questions(cluster):
            yield name, ask()

    def _questions(self, cluster: EmbeddedCluster) -> Iterator[tuple[str, Callable[[], Answer]]]:
        """Yield every reader by name."""
        for path in PATHS:
            for what, ask in self._of_table(cluster, path):
                yield f"{path} {what}", ask
        yield "keyed lookup", partial(self._looked_up, cluster)

    def _of_table(self, cluster: EmbeddedCluster, path: TablePath) -> Iterator[tuple[str, Callable[[], Answer]]]:
        def scan(**options: Any) -> Scan:
            return TableReader(cluster.connection, path).scan(**options)

        def reader() -> TableReader:
            return TableReader(cluster.connection, path)

        where = pc.field("id") < 7
        yield "scan", lambda: _rows(scan().to_arrow())
        yield "where", lambda: _rows(scan(where=where).to_arrow())
        yield "count", lambda: scan().count()
        yield "count where", lambda: scan(where=where).count()
        yield "limit", lambda: scan(limit=5).to_arrow().num_rows
        yield "changelog", lambda: _rows(reader().changelog().to_arrow())
        if path == KEYED:
            yield "net", lambda: _rows(reader().changelog(net=True).to_arrow())
        for time_ms in self.times:
            yield f"seek {time_ms}", partial(_sought, reader, time_ms)
            yield f"as of {time_ms}", partial(_as_of, scan, time_ms)
        yield "diff", lambda: _diff(reader().diff(self.times[2], self.times[0]))
        yield "subscribe", partial(self._subscribed, cluster, path)

    def _subscribed(self, cluster: EmbeddedCluster, path: TablePath) -> Answer:
        wanted = len(self.expected[f"{path} changelog"]) if hasattr(self, "expected") else None
        found: list[tuple[int, int, str]] = []
        with cluster.connection.log_scanner(path) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            silent_since = time.monotonic()
            while wanted is None or len(found) < wanted:
                batches = list(scanner.poll(0.3))
                for batch in batches:
                    names = batch.records.rows["name"].to_pylist()
                    found += zip(
                        [batch.bucket.bucket] * len(names), batch.records.offsets.to_pylist(), names, strict=True
                    )
                if batches:
                    silent_since = time.monotonic()
                elif wanted is None:
                    break
                elif time.monotonic() - silent_since > SILENCE_S:
                    raise FlussError("the subscription is silent")
        return sorted(found)

    def _looked_up(self, cluster: EmbeddedCluster) -> Answer:
        with cluster.connection.lookuper(KEYED) as lookuper:
            return _rows(lookuper.lookup([{"id": number} for number in range(KEYS + 3)]))

    def _tier(self, cluster: EmbeddedCluster, path: TablePath) -> None:
        info = cluster.connection.table_info(path)
        run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)

    # -- damaging ------------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> Path:
        """Return the lab as it was filled; nobody changes it."""
        return self._kept

    def kinds(self) -> dict[str, list[Path]]:
        """Return the lab's files by kind: those whose names differ by numbers only are of one. Paths count from the lab.

        They are in the order in which they were written: names have random parts, and a seed is to mean the same files.
        """
        found: dict[str, list[Path]] = {}
        for path in sorted(self._kept.rglob("*"), key=lambda path: (path.lstat().st_mtime_ns, path)):
            if path.is_file() and not path.is_symlink() and path.name not in _UNREAD:
                own = path.relative_to(self._kept)
                found.setdefault(_VARIABLE.sub("#", str(own)), []).append(own)
        return found

    def problems(self, damage: Callable[[Path], None], file: Path) -> tuple[list[str], int]:
        """Lay the lab anew, damage a file, ask everything, tier, and ask again.

        Returns:
            What was neither exact nor an error of the house, and how many errors there were.
        """
        wrong, errors = self.heard(damage, file)
        return wrong, len(errors)

    def heard(
        self, damage: Callable[[Path], None], file: Path, *, again: bool = True
    ) -> tuple[list[str], list[FlussError]]:
        """Do what `problems` does; return the errors themselves. Not `again`: nothing is asked after the rounds."""
        shutil.rmtree(self.place)
        shutil.copytree(self._kept, self.place)
        damage(self.place / file)
        wrong: list[str] = []
        cluster = self._cluster()
        try:
            try:
                cluster.start()
            except FlussError as error:
                return wrong, [error]
            errors = self._ask(cluster, wrong, "")
            for path in PATHS:
                try:
                    self._tier(cluster, path)
                except FlussError as error:
                    errors.append(error)
            return wrong, errors + (self._ask(cluster, wrong, "after a round: ") if again else [])
        except Exception as error:
            wrong.append(f"a raw {type(error).__name__}: {error}")
            return wrong, []
        finally:
            cluster.close()

    def _ask(self, cluster: EmbeddedCluster, wrong: list[str], when: str) -> list[FlussError]:
        errors: list[FlussError] = []
        for name, ask in self._questions(cluster):
            try:
                found = ask()
            except FlussError as error:
                errors.append(error)
                continue
            except Exception as error:
                wrong.append(f"{when}{name}: a raw {type(error).__name__}: {error}")
                continue
            if found != self.expected[name]:
                wrong.append(f"{when}{name}: {_difference(found, self.expected[name])}")
        return errors


def _difference(found: Answer, expected: Answer) -> str:
    if isinstance(found, list) and isinstance(expected, list):
        return f"expected {len(expected)} rows, found {len(found)}" + (" others" if len(found) == len(expected) else "")
    return f"expected {str(expected)[:100]}, found {str(found)[:100]}"


def _rows(table: pa.Table) -> list[tuple[str, ...]]:
    """Return rows in an order of their own: what a reader's order is, others test."""
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


def _sought(reader: Callable[[], TableReader], time_ms: int) -> Answer:
    return sorted(reader().seek(time_ms).offsets.items())


def _as_of(scan: Callable[..., Scan], time_ms: int) -> Answer:
    return _rows(scan(as_of=time_ms).to_arrow())


def _diff(diff: Any) -> Answer:
    return [_rows(part) for part in (diff.added, diff.removed)]
