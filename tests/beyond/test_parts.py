"""The parts themselves: they start, stop, come back with what they hold, and leave nothing behind, however their starter ends."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from fluss_lab.testing import wait_until
from tools.beyond.minio_server import MinioServer
from tools.beyond.part_process import PartFailedError, PartFolder, PartProcess

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

ROWS = pa.table({"a": [1, 2, 3]})


def catalog_of(options):
    return load_catalog("parts", **options)


def table_of(catalog):
    catalog.create_namespace_if_not_exists("parts")
    table = catalog.create_table("parts.t", ROWS.schema)
    table.append(ROWS)
    return table


def test_nessie_and_minio_come_back_with_what_they_held(minio, nessie):
    catalog = catalog_of(nessie.lake_options())
    table_of(catalog)
    for part in (nessie.process, minio.process):
        part.kill()
        part.start()
    assert catalog.load_table("parts.t").scan().to_arrow() == ROWS


def test_icebergs_own_server_has_catalogs_by_name_and_comes_back_with_them(minio, iceberg_rest):
    one, other = (catalog_of(iceberg_rest.lake_options(name)) for name in ("one", "other"))
    table = table_of(one)
    assert not other.namespace_exists("parts")
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "kept").commit()
    table.append(ROWS)
    iceberg_rest.process.kill()
    iceberg_rest.process.start()
    table = one.load_table("parts.t")
    assert len(table.snapshots()) == 2
    assert table.scan(snapshot_id=table.refs()["kept"].snapshot_id).to_arrow() == ROWS


def test_postgres_comes_back_with_what_it_held(minio, postgres):
    location = minio.make_bucket("parts-of-postgres")
    options = {"type": "sql", "uri": postgres.uri(), "warehouse": location, **minio.lake_options()}
    catalog = catalog_of(options)
    table_of(catalog)
    catalog.close()
    postgres.process.kill()
    postgres.process.start()
    catalog = catalog_of(options)
    assert catalog.load_table("parts.t").scan().to_arrow() == ROWS
    catalog.close()


def test_revoked_credentials_are_refused_until_they_are_restored(minio):
    minio.make_bucket("refused")
    minio.revoke_credentials()
    with pytest.raises(OSError, match=r"SIGNATURE|InvalidAccessKeyId|ACCESS_DENIED"):
        minio.make_bucket("refused-too")
    minio.restore_credentials()
    minio.make_bucket("refused-no-more")


def test_a_part_that_does_not_start_shows_its_log():
    folder = PartFolder("broken", None)
    part = PartProcess("broken", ["/bin/sh", "-c", "echo why; exit 3"], folder, lambda: False)
    with part, pytest.raises(PartFailedError, match="ended with code 3 before it answered:\nwhy"):
        part.start()
    assert not folder.path.exists()


def test_a_part_that_never_answers_is_ended():
    folder = PartFolder("deaf", None)
    part = PartProcess("deaf", ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], folder, lambda: False, start_timeout_s=1)
    with part, pytest.raises(PartFailedError, match="did not answer within 1 s"):
        part.start()
    child = int(part.log_end() or "0") if part.log.exists() else 0
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_part_ends_with_the_process_that_started_it(how):
    code = (
        "import threading\nfrom tools.beyond.minio_server import MinioServer\nserver = MinioServer()\n"
        "print(server.process.pid, server.process.log.parent, flush=True)\nthreading.Event().wait()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        os.kill(starter.pid, how)
    wait_until(lambda: not psutil.pid_exists(int(pid)) and not Path(folder).exists(), 30)


def test_nothing_is_left_behind():
    with MinioServer() as server:
        folder, pid = server.process.log.parent, server.process.pid
        assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()
    assert not psutil.pid_exists(pid)


def test_no_secret_is_on_a_command_line_or_in_a_log(minio, nessie, iceberg_rest, postgres):
    of_minio = [(part, minio.secret_key) for part in (minio, nessie, iceberg_rest)]
    for part, secret in (*of_minio, (postgres, postgres.password)):
        assert secret not in " ".join(part.process.command)
        assert secret not in part.process.log.read_text()
