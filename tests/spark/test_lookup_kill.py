"""A stream that looks rows up, killed with its JVM and started again, while the table changes: every row once, at its batch's point."""

import json
import random

import pytest

from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.spark.lookup.batch_points import POINTS
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab
from tests.spark.streamer import Streamer

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

ROWS, BATCH, KILLS = 2000, 40, 5


def test_a_killed_stream_goes_on_exactly(tmp_path, seed):
    rng = random.Random(seed)
    with EmbeddedCluster(tmp_path / "lab") as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place=place_options(cluster.address))
        lab.create_database("db")
        schema = {"id": "bigint", "version": "int"}
        table = lab.create_table(
            "db.t", schema, rows=[{"id": i, "version": 0} for i in range(50)], primary_key=["id"], buckets=3
        )
        keys = [rng.randrange(60) for _ in range(ROWS)]
        lab.create_table("db.in", {"k": "bigint"}, rows=[{"k": k} for k in keys])
        folder = tmp_path / "driver"
        folder.mkdir()

        def change():
            ids = rng.sample(range(60), 20)
            table.upsert([{"id": i, "version": rng.randrange(1000)} for i in ids[:12]])
            table.delete([{"id": i} for i in ids[12:]])

        for kill in range(KILLS + 1):
            ends = kill == KILLS
            driver = Streamer(
                folder,
                cluster.address.to_json(),
                "db.in",
                "db.t",
                ends=ends,
                rows_max=BATCH,
                module="tests.spark.lookup_streamer",
            )
            if ends:
                assert driver.wait() == 0, driver.log_end()
                continue
            for reported in range(1, rng.randint(2, 8)):
                assert driver.wait_for(reported), driver.log_end()
                change()
            driver.kill()
        found = {int(path.stem): json.loads(path.read_text()) for path in (folder / "files").glob("*.json")}
        assert sorted(row[0] for rows in found.values() for row in rows) == list(range(ROWS))
        for number, rows in found.items():
            text = (folder / "checkpoint" / POINTS / "db.t" / str(number)).read_text()
            point = ReadPoint.from_json(json.loads(text)["point"])
            versions = {row["id"]: row["version"] for row in table.scan(read_point=point).to_arrow().to_pylist()}
            assert all(version == versions.get(keys[offset]) and k == keys[offset] for offset, k, version in rows)
