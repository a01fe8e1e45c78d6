"""A cluster with a lake, and the questions that tests of tiering ask of both."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("month", pa.string())])
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


class Tables:
    """Tables of one cluster, what was appended to them, and what the lake holds."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.appended: Counter[TablePath] = Counter()
        cluster.connection.admin().create_database("db", if_not_exists=True)

    @property
    def connection(self) -> Any:
        return self.cluster.connection

    @property
    def storage(self) -> LakeStorage:
        storage: LakeStorage | None = self.connection.lake_storage()
        assert storage is not None
        return storage

    def create(self, name: str = "events", *, properties: dict[str, Any] | None = None, **options: Any) -> TableInfo:
        descriptor = make_descriptor(SCHEMA, properties=LAKE | (properties or {}), **options)
        info: TableInfo = self.connection.admin().create_table(TablePath("db", name), descriptor)
        return info

    def append(self, info: TableInfo, rows: int, month: str = "2013-01") -> None:
        first = self.appended[info.path]
        batch = pa.table(
            {
                "id": pa.array(range(first, first + rows), pa.int64()),
                "name": pa.array([f"n{number}" for number in range(first, first + rows)]),
                "month": pa.array([month] * rows),
            }
        )
        with self.connection.append_writer(info.path) as writer:
            writer.append(batch)
        self.appended[info.path] += rows

    def tier(self, info: TableInfo, **options: Any) -> TieringReport:
        executor = options.pop("executor", None) or LocalTieringExecutor()
        storage = options.pop("storage", None) or self.storage
        report = run_round(self.connection, storage, executor, table_id=info.table_id, **options)
        assert report is not None
        return report

    def lake(self, info: TableInfo) -> Any:
        """Return the pyiceberg table, as somebody else would load it."""
        from pyiceberg.catalog import load_catalog

        properties = dict(self.storage.properties)
        return load_catalog(properties.pop("name"), **properties).load_table((info.path.database, info.path.table))

    def lake_rows(self, info: TableInfo) -> pa.Table:
        rows: pa.Table = self.lake(info).scan().to_arrow()
        return rows

    def ends(self, info: TableInfo) -> dict[tuple[str | None, int], int]:
        """Return the log end offset of each bucket."""
        return {
            (status.partition, status.bucket.bucket): status.end_offset
            for status in self.connection.admin().buckets(info)
        }

    def check(self, info: TableInfo, *, complete: bool = True) -> None:
        """Check that the lake holds every offset of each bucket once, from 0 on without gap; up to the end if complete."""
        rows = self.lake_rows(info)
        partitions = rows["month"].to_pylist() if info.descriptor.partitioned_by else [None] * len(rows)
        found: dict[tuple[str | None, int], list[int]] = {}
        columns = (partitions, rows["__bucket"].to_pylist(), rows["__offset"].to_pylist())
        for partition, bucket, offset in zip(*columns, strict=True):
            found.setdefault((partition, bucket), []).append(offset)
        for bucket, offsets in found.items():
            assert sorted(offsets) == list(range(len(offsets))), f"bucket {bucket}: a duplicate or a gap"
        assert len(set(rows["id"].to_pylist())) == len(rows)
        if complete:
            held = {bucket: len(offsets) for bucket, offsets in found.items()}
            assert held == {bucket: end for bucket, end in self.ends(info).items() if end}
            assert len(rows) == self.appended[info.path]

    def known(self, info: TableInfo) -> Any:
        return self.connection.admin().lake_snapshot(info.path)

    def files(self, info: TableInfo) -> set[str]:
        """Return the data files that lie in the table's folder, whoever refers to them."""
        from pathlib import Path
        from urllib.parse import unquote, urlparse

        folder = Path(unquote(urlparse(self.lake(info).location()).path))
        return {str(path) for path in folder.rglob("*.parquet")}

    def referenced(self, info: TableInfo) -> set[str]:
        """Return the data files that the newest snapshot refers to."""
        from urllib.parse import unquote, urlparse

        return {unquote(urlparse(task.file.file_path).path) for task in self.lake(info).scan().plan_files()}


#: Heartbeats faster than the takeover time of the clusters below.
FAST = TieringOptions(renew_interval_s=0.05)
#: A tierer that is silent for so long loses its table to one asked by hand; a dead process loses it at once.
TAKEOVER = {"lake.tiering.takeover": "300ms", "lake.tiering.heartbeat-timeout": "30s"}
