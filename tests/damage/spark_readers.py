"""The whole lab of the damage matrix, asked by Spark: SQL over its tables, changelogs, and streams."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.model import TablePath
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark import register
from fluss_lab.spark.source.lab_sql import sql
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.testing import EmbeddedCluster
from tests.damage.whole_lab import CLIENT, PATHS, Answer, WholeLab, _rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Longest that an answer or an error may take: Spark tries a task three times, and a client waits for its time-out.
ANSWER_S: Final = 60.0
#: What an error in Spark must speak of: an error of the house, or Spark's own of a file that it names.
_SPOKEN: Final = ("fluss_lab.errors.", "FAILED_READ_FILE")


class SparkLab(WholeLab):
    """The lab, its answers as Spark gives them. What a stream has read is kept in a checkpoint.

    Args:
        folder: For the lab and its kept copy.
        session: Of Spark.
    """

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self._session, self._folder, self._streams = session, folder, 0
        self.slowest_s = 0.0
        super().__init__(folder)

    def _questions(self, cluster: EmbeddedCluster) -> Iterator[tuple[str, Callable[[], Answer]]]:
        register(self._session, place_options(cluster.connection.address))
        for path in PATHS:
            for what, ask in self._of_spark(cluster, path):
                yield f"{path} {what}", partial(self._timed, ask)

    def _timed(self, ask: Callable[[], Answer]) -> Answer:
        began_s = time.monotonic()
        try:
            return ask()
        except (PySparkException, Py4JJavaError) as error:
            if any(word in str(error) for word in _SPOKEN):
                raise FlussError(str(error)) from error
            raise
        finally:
            took_s = time.monotonic() - began_s
            self.slowest_s = max(self.slowest_s, took_s)
            assert took_s < ANSWER_S, f"{took_s:.0f} s until an answer or an error"

    def _of_spark(self, cluster: EmbeddedCluster, path: TablePath) -> Iterator[tuple[str, Callable[[], Answer]]]:
        def select(text: str) -> Answer:
            return _rows(sql(self._session, text, partial(self._frame, cluster)).toArrow())

        yield "sql", lambda: select(f"select * from {path}")
        yield "sql where", lambda: select(f"select name from {path} where id < 7")
        yield "sql count", lambda: select(f"select count(*) from {path}")
        yield (
            "changelog",
            lambda: _rows(
                changelog_to_spark(self._session, TableReader(cluster.connection, path).changelog()).toArrow()
            ),
        )
        yield "stream", partial(self._streamed, cluster, path)

    def _frame(self, cluster: EmbeddedCluster, parts: list[str]) -> DataFrame | None:
        try:
            reader = TableReader(cluster.connection, TablePath(*parts))
        except NotFoundError:
            return None
        return scan_to_spark(self._session, reader.scan())

    def _streamed(self, cluster: EmbeddedCluster, path: TablePath) -> Answer:
        self._streams += 1
        return self.stream(cluster, path, self._folder / f"checkpoint-{self._streams}")

    def stream(self, cluster: EmbeddedCluster, path: TablePath, checkpoint: Path, **options: Any) -> Answer:
        """Return the records that a query reads until it has them all, from a checkpoint that may be a new one."""
        found: list[tuple[str, ...]] = []

        def take(frame: DataFrame, _batch: int) -> None:
            found.extend(_rows(frame.toArrow()))

        place = place_options(cluster.connection.address) | CLIENT
        reader = self._session.readStream.format("fluss").options(**place, table=str(path), changelog="true", **options)
        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(ANSWER_S), "a stream neither ended nor failed"
        finally:
            query.stop()
        return sorted(found)

    def fresh(self) -> EmbeddedCluster:
        """Return the lab as it was filled, laid anew and not started."""
        shutil.rmtree(self.place)
        shutil.copytree(self._kept, self.place)
        return self._cluster()
