"""The server's log: one line a record, of key=value fields that a program can take apart."""

import logging

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.server.process.text_log_file import log_to
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.testing import ServerProcess


@pytest.fixture
def lines(tmp_path):
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    log_to(tmp_path / "server.log")
    yield lambda: (tmp_path / "server.log").read_text().splitlines()
    root.setLevel(level)
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()


def test_lines_about_a_bucket_say_which(lines):
    logger = BucketLogger(logging.getLogger("tests.bucket"), "nyc.flights", "2013-01", TableBucket(7, 2, 3))
    logger.info("rolled at %d", 100)
    BucketLogger(logging.getLogger("tests.bucket"), "nyc.plain", None, TableBucket(8, None, 0)).warning("x")
    first, second = lines()
    assert " table=nyc.flights partition=2013-01 bucket=t7/p2/b3 message=" in first
    assert "rolled at 100" in first
    assert " table=nyc.plain bucket=t8/b0 message=" in second
    assert "partition=" not in second


def test_nothing_in_a_record_ends_its_line_or_makes_a_field(lines):
    log = logging.getLogger("tests.hostile")
    log.info("two\nlines level=ERROR")
    log.info("event=x name=%s", "a\nb")
    log.info("y", extra={"table": 'a b="c"', "bucket": "t1/b0"})
    try:
        raise ValueError("line\nline")
    except ValueError:
        log.exception("failed")
    found = lines()
    assert len(found) == 4
    assert found[0].endswith('message="two\\nlines level=ERROR"')
    assert found[1].endswith("event=x name=a\\nb")
    assert ' table="a b=\\"c\\"" bucket=t1/b0 ' in found[2]
    assert "traceback=" in found[3]


def test_a_servers_log_tells_of_the_buckets_it_opens(tmp_path):
    with ServerProcess(tmp_path / "lab") as server:
        admin = server.connection.admin()
        admin.create_database("db")
        admin.create_table(TablePath("db", "t"), make_descriptor({"a": "bigint"}, buckets=2))
        text = (server.folder / "server.log").read_text()
    opened = [line for line in text.splitlines() if " table=db.t bucket=t1/b1 " in line]
    assert any("open: [0, 0)" in line for line in opened)
