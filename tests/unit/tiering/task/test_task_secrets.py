"""What tasks of a round are sent: credentials of the file system, none of the catalog."""

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.maintenance.manual_maintenance import maintain
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import parse_task

PATH = TablePath("db", "keyed")
OPTIONS = {
    "datalake.iceberg.credential": "id:SUPERSECRET",
    "datalake.iceberg.token": "SUPERSECRET",
    "datalake.iceberg.header.X-Key": "SUPERSECRET",
    "datalake.iceberg.s3.secret-access-key": "FILESECRET",
}


class RecordingExecutor(LocalTieringExecutor):
    """Runs tasks, and keeps what they were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []

    def run(self, tasks, *arguments, **options):
        self.seen += tasks
        return super().run(tasks, *arguments, **options)


def test_tasks_of_rounds_and_compactions_hold_no_secret_of_the_catalog(tmp_path):
    executor = RecordingExecutor()
    with EmbeddedCluster(tmp_path / "lab", OPTIONS) as cluster:
        admin, storage = cluster.connection.admin(), cluster.connection.lake_storage()
        admin.create_database("db")
        descriptor = make_descriptor(
            {"id": "bigint", "v": "string"},
            primary_key=["id"],
            properties={"table.datalake.enabled": True, "table.datalake.auto-maintenance": False},
        )
        info = admin.create_table(PATH, descriptor)
        for value in "abc":
            with cluster.connection.upsert_writer(PATH) as writer:
                writer.upsert([{"id": n, "v": value} for n in range(10)])
            run_round(cluster.connection, storage, executor, table_id=info.table_id)
        rounds = len(executor.seen)
        maintain(cluster.connection, storage, executor, lambda held: held.compact(force=True), table_id=info.table_id)
    assert rounds == 3
    assert len(executor.seen) > rounds
    for task in executor.seen:
        assert b"SUPERSECRET" not in task
        assert b"catalog.db" not in task
        assert "SECRET" not in f"{parse_task(task)!r} {parse_task(task)}"
    # What the files are read with is there: a task opens nothing else.
    assert all(b"FILESECRET" in task for task in executor.seen)
