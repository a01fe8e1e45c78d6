"""Rounds and reads on a Spark master whose executors see nothing of the driver's folders. Prints a line a step.

``python -m tests.beyond.cluster_reads <master> <folder> <lake options as JSON> <step>...``
"""

from __future__ import annotations

import json
import random
import sys
import traceback
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_lab.spark.session.spark_session import spark_session
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.spark.tiering.cluster_preflight import check_store
from fluss_lab.spark.tiering.spark_executor import SparkTieringExecutor
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import maintain_by_hand
from fluss_lab.tiering.round.tiering_round import run_round
from tests.spark.keyed_tables import Flights
from tests.spark.spark_steps import SparkSteps
from tests.unit.read.kit import OPTIONS, ModelTable, rows_of

MONTHS = ["2013-01", "2013-02"]


class Steps(SparkSteps):
    """What is done with one cluster."""

    def __init__(self, session: Any, cluster: EmbeddedCluster, clock: MockClock, folder: Path) -> None:
        super().__init__(session)
        self.cluster = cluster
        self.clock = clock
        self.folder = folder
        self.context = session.sparkContext
        #: What was shown of anything, to be searched for secrets.
        self.texts: list[str] = []

    def unseen(self) -> None:
        """Executors have neither the lab's folder nor the catalog's file: what follows needs neither."""
        place = str(self.folder)

        def look(_number: int) -> list[str]:
            return sorted(each.name for each in Path(place).glob("*"))

        assert any(self.folder.iterdir())
        assert self.context.parallelize(range(4), 4).map(look).collect() == [[]] * 4

    def preflight(self) -> None:
        """The store serves the driver and executors; with other keys it is said which serves whom."""
        storage = self._storage()
        master = str(self.context.master)
        check_store(self.context, master, storage, [])

    def log_table(self) -> None:
        """Rounds of a log table, and its reads: whole, filtered, of the lake alone, and its changelog."""
        table = ModelTable(self.cluster, self.clock, "log")
        for number in range(2):
            table.append_random(random.Random(number), 200, MONTHS)
            assert self._tier(table).rows == 200
        table.expire()
        table.append_random(random.Random(9), 50, MONTHS)
        for where in (None, "delay > 60 or dest is null"):
            scan = table.reader().scan(where=where)
            assert _all(scan_to_spark(self.session, scan)) == _all(scan)
        log = table.reader().changelog()
        assert _all(changelog_to_spark(self.session, log)) == _all(log)

    def keyed_table(self) -> None:
        """Rounds of a primary-key table, a compaction, and its reads at two moments."""
        table = Flights(self.cluster, self.clock, "keyed")
        table.write(random.Random(1), 200)
        self._tier(table)
        point = table.reader().read_point()
        table.write(random.Random(2), 100)
        self._tier(table)
        maintain_by_hand(
            self.cluster.connection, self._storage(), SparkTieringExecutor(self.session), "compact", table.info.table_id
        )
        table.write(random.Random(3), 30)
        for at in (None, point):
            scan = table.reader().scan(read_point=at)
            assert _all(scan_to_spark(self.session, scan)) == _all(scan)

    def moved(self) -> None:
        """A plan whose files were replaced meanwhile: executors cannot ask a catalog in a file of the driver, and say so."""
        table = ModelTable(self.cluster, self.clock, "moved")
        table.append_random(random.Random(1), 100, MONTHS)
        self._tier(table)
        table.expire()
        table.append_random(random.Random(2), 30, MONTHS)
        frame = scan_to_spark(self.session, table.reader().scan())
        expected = _all(frame)
        self._tier(table)
        for action in ("compact", "expire"):
            maintain_by_hand(
                self.cluster.connection, self._storage(), SparkTieringExecutor(self.session), action,
                table.info.table_id, ahead_ms=86_400_000,
            )  # fmt: skip
        with pytest.raises(Exception, match=r"changed since the read was planned[\s\S]*run the query again"):
            frame.collect()
        assert _all(scan_to_spark(self.session, table.reader().scan())) == expected

    def secrets(self) -> None:
        """What Spark shows of reads and rounds, and says when they fail, has no secret in it."""
        table = ModelTable(self.cluster, self.clock, "shown")
        table.append_random(random.Random(1), 100, MONTHS)
        self._tier(table)
        table.expire()
        table.append_random(random.Random(2), 30, MONTHS)
        frame = scan_to_spark(self.session, table.reader().scan(where="delay > 0"))
        changes = changelog_to_spark(self.session, table.reader().changelog())
        assert changes.count() == 130
        frame.createOrReplaceTempView("shown")
        self.session.sql("select dest, count(*) from shown group by dest").collect()
        shown = [repr(frame), frame._jdf.queryExecution().toString(), changes._jdf.queryExecution().toString()]
        shown += [row[0] for row in self.session.sql("explain extended select * from shown").collect()]
        shown += [repr(self._storage()), repr(table.reader()), repr(self.cluster.connection)]
        lake = self._storage().access.load_table(table.path)
        for file in [each.file.file_path for each in lake.scan().plan_files()]:
            lake.io.delete(file)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark makes of it
            frame.collect()
        shown.append("".join(traceback.format_exception(caught.value)))
        shown += list(self._pages())
        self.texts += shown

    def _pages(self) -> Iterator[str]:
        """Yield what Spark's UI shows, and its REST interface answers."""
        web = str(self.context.uiWebUrl)
        app = f"{web}/api/v1/applications/{self.context.applicationId}"
        rest = ("jobs", "stages?details=true", "executors", "environment", "sql?details=true&planDescription=true")
        runs = json.loads(_page(f"{app}/sql"))
        assert len(runs) >= 3
        yield from (_page(f"{app}/{each}") for each in rest)
        yield from (
            _page(f"{web}/{each}/") for each in ("jobs", "stages", "storage", "environment", "executors", "SQL")
        )
        yield from (_page(f"{web}/SQL/execution/?id={run['id']}") for run in runs)

    def _storage(self) -> Any:
        return self.cluster.connection.lake_storage()

    def _tier(self, table: Any) -> Any:
        executor = SparkTieringExecutor(self.session)
        report = run_round(self.cluster.connection, self._storage(), executor, table_id=table.info.table_id)
        assert report is not None
        return report


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def _all(read: Any) -> list[str]:
    """Return the rows of a read, or a frame, as texts in one order."""
    rows = read.toArrow() if hasattr(read, "toArrow") else read.to_arrow()
    return sorted(map(repr, rows_of(rows)))


def main(master: str, folder: Path, lake: dict[str, str], steps: list[str]) -> None:
    """Run steps on a master."""
    clock = MockClock()
    events = folder / "events"
    events.mkdir(exist_ok=True)
    settings = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with EmbeddedCluster(folder / "lab", OPTIONS | lake, clock=clock) as cluster:
        done = Steps(spark_session(master=master, config=settings), cluster, clock, folder)
        done.run(steps)
        token = cluster.address.token
    logged = [each.read_text() for each in events.rglob("*") if each.is_file()]
    assert any("SparkListenerJobStart" in each for each in logged)
    for secret in (
        token,
        *(
            lake[key]
            for key in map("datalake.iceberg.{}".format, ("s3.secret-access-key", "credential"))
            if key in lake
        ),
    ):
        for text in (*logged, *done.texts):
            assert secret not in text, text[max(0, text.index(secret) - 500) :][:700]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:])
