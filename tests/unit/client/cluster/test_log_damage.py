"""A damaged log: readers are told, and other buckets go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fluss_lab.client import read_range
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster


def test_damaged_records_are_reported_after_those_before_them_and_other_buckets_go_on(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path / "lab", lake=False, client={"client.request-timeout": "3s"}) as cluster:
        connection = cluster.connection
        connection.admin().create_database("db")
        info = connection.admin().create_table(TablePath("db", "t"), make_descriptor({"id": "bigint"}, buckets=2))
        placed: dict[int, int] = {}
        with connection.append_writer(info.path) as writer:
            for _ in range(6):
                ((_, bucket),) = writer.append({"id": np.arange(100)}).result().offsets
                placed[bucket] = placed.get(bucket, 0) + 100
        assert placed == {0: 300, 1: 300}
        damage_last_byte_of_log(tmp_path, 1)
        found = {0: 0, 1: 0}
        raised: list[str] = []
        with connection.log_scanner(info.path) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            for _ in range(100):
                try:
                    for batch in scanner.poll(0.2):
                        assert batch.records.base_offset == found[batch.bucket.bucket]
                        found[batch.bucket.bucket] = batch.records.next_offset
                except CorruptDataError as error:
                    raised.append(str(error))
                if raised and found[0] == 300:
                    break
            assert scanner.poll(0.2).count == 0
        assert found == {0: 300, 1: 200}
        assert ["bucket" in text for text in raised] == [True]
        runs = read_range(connection, info, TableBucket(info.table_id, None, 1), 0, 300)
        with pytest.raises(CorruptDataError):
            list(runs)


def damage_last_byte_of_log(folder: Path, bucket: int) -> None:
    logs = [path for path in folder.rglob("*.log") if path.stat().st_size > 1000 and f"{bucket}" in path.parent.name]
    (path,) = logs
    data = bytearray(path.read_bytes())
    data[-9] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)
