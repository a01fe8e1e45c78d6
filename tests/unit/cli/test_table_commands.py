"""Tables from the shell: what is printed is what is there."""

import json

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.times import parse_moment
from fluss_lab.testing import EmbeddedCluster
from tests.unit.cli.shell_kit import call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A running lab with a lake-enabled table of three rows and one with a primary key, in a folder with a space in its name."""
    path = tmp_path_factory.mktemp("cli") / "my lab"
    with EmbeddedCluster(path) as running:
        admin = running.connection.admin()
        admin.create_database("nyc")
        enabled = {"table.datalake.enabled": True}
        admin.create_table(
            TablePath("nyc", "flights"), make_descriptor({"a": "bigint", "s": "string"}, properties=enabled)
        )
        with running.connection.append_writer("nyc.flights") as writer:
            writer.append([{"a": 1, "s": "ä"}, {"a": 2, "s": None}, {"a": 3, "s": "c"}]).result()
        admin.create_table(TablePath("nyc", "planes"), make_descriptor({"k": "int", "v": "int"}, primary_key=["k"]))
        with running.connection.upsert_writer("nyc.planes") as writer:
            writer.upsert([{"k": 1, "v": 1}]).result()
            writer.upsert([{"k": 1, "v": 2}]).result()
            writer.delete([{"k": 1}]).result()
        yield path


def test_tables_and_show(folder):
    assert call("tables", "-f", folder).out == "nyc.flights\nnyc.planes\n"
    assert call("tables", "nyc", "-f", folder).out == "nyc.flights\nnyc.planes\n"
    shown = call("show", "nyc.flights", "-f", folder).out
    for expected in (
        "log table",
        "BIGINT",
        "table.datalake.enabled",
        "buckets of nyc.flights",
        "snapshots of nyc.flights",
        "local_start",
    ):
        assert expected in shown
    (found,) = map(json.loads, call("show", "nyc.flights", "--json", "-f", folder).out.splitlines())
    (bucket,) = found["buckets"]
    assert [bucket[name] for name in ("start", "local_start", "remote_start", "end")] == [0, 0, None, 3]
    assert [bucket[name] for name in ("lake_start", "lake_end", "lag", "warning")] == [None, None, 3, None]


def test_tail_prints_records_as_json(folder):
    lines = call("tail", "nyc.flights", "--from", "earliest", "--rows", "2", "--json", "-f", folder).out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert all(list(row)[:4] == ["_change_type", "_bucket", "_log_offset", "_commit_timestamp"] for row in rows)
    assert all(parse_moment(row.pop("_commit_timestamp")) > 0 for row in rows)
    assert rows == [
        {"_change_type": "+A", "_bucket": 0, "_log_offset": 0, "a": 1, "s": "ä"},
        {"_change_type": "+A", "_bucket": 0, "_log_offset": 1, "a": 2, "s": None},
    ]


def test_tail_of_a_primary_key_table_shows_what_each_record_does(folder):
    lines = call("tail", "nyc.planes", "--from", "earliest", "--rows", "4", "--json", "-f", folder).out.splitlines()
    assert [(row["_change_type"], row["v"]) for row in map(json.loads, lines)] == [
        ("+I", 1), ("-U", 1), ("+U", 2), ("-D", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables",),
        ("show", "nyc.flights"),
        ("tier",),
        ("tier", "--continuous"),
        ("tail", "nyc.flights"),
        ("repair", "a.b", "--adopt"),
        ("repair", "a.b", "--skip-corrupt"),
        ("run", "01_quickstart"),
        ("jobs", "list"),
        ("jobs", "run"),
        ("jobs", "schedule", "x", "01_quickstart", "--cron", "@daily"),
    ],
)
def test_no_command_but_up_makes_a_lab(tmp_path, arguments):
    failed = call(*arguments, "--folder", tmp_path / "typo")
    assert (failed.code, failed.out) == (1, "")
    assert "expected a lab's folder, found nothing" in failed.err
    assert f"fluss-lab up {tmp_path / 'typo'}" in failed.err
    assert list(tmp_path.iterdir()) == []
    empty = call(*arguments, "-f", tmp_path)
    assert (empty.code, list(tmp_path.iterdir())) == (1, [])
    (tmp_path / "file").write_text("")
    failed = call(*arguments, "-f", tmp_path / "file")
    assert failed.code == 2
    assert "is a file" in failed.err


def test_tier_says_that_there_is_nothing_to_tier(tmp_path):
    with EmbeddedCluster(tmp_path / "lab") as running:
        running.connection.admin().create_database("nyc")
        running.connection.admin().create_table(TablePath("nyc", "plain"), make_descriptor({"a": "bigint"}))
        done = call("tier", "-f", tmp_path / "lab")
    assert (done.code, done.out) == (0, "")
    assert done.err == "nothing to tier: no table has table.datalake.enabled=true\n"


def test_the_home_is_expanded_where_no_shell_does(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert call("tables", f"--folder=~/{folder.name}").out == "nyc.flights\nnyc.planes\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nyc.none"), "nyc.none"),
        (("tail", "flights"), "database.table"),
        (("tables", "none"), "none"),
        (("tier", "--continuous", "nyc.flights"), "leave the paths out"),
        (("tier", "--for", "1s"), "belong to tier --continuous"),
        (("tier", "--continuous", "--for", "soon"), "expected a duration"),
        (("tier", "--spark", "no value"), "expected KEY=VALUE"),
    ],
)
def test_errors_are_one_line(folder, arguments, says):
    failed = call(*arguments, "-f", folder)
    assert failed.code == 1
    assert failed.out == ""
    assert says in failed.err
    assert len(failed.err.strip().splitlines()) == 1
    assert "Traceback" not in failed.err
