"""Tables read from the shell: head, tail, seek, changelog, diff, as tables and as JSON."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.cli.read_commands import moment, names
from fluss_lab.errors import InvalidTimestampError
from fluss_lab.model.times import format_moment, parse_moment
from tests.unit.cli.shell_kit import call

COMMAND = (sys.executable, "-m", "fluss_lab.cli")
SYSTEM = ["_change_type", "_bucket", "_log_offset", "_commit_timestamp"]


@pytest.fixture
def folder(shell_lab):
    return shell_lab.folder


def process(*arguments: object) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def test_head(folder):
    shown = call("head", "nyc.flights", "-n", 2, "--where", "a >= 1", "-f", folder)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines() == ["a  s", "1  -", r"2  ä2\n\x1b[2J"]
    rows = call("head", "nyc.flights", "--columns", "s,a", "--where", "a >= 1", "--json", "-f", folder).rows
    assert rows[:2] == [{"s": None, "a": 1}, {"s": "ä2\n\x1b[2J", "a": 2}]
    assert list(rows[0]) == ["s", "a"]
    assert len(rows) == 5


def test_what_is_empty_has_a_header_and_no_json(folder):
    for words in (("head", "nyc.empty"), ("tail", "nyc.empty"), ("changelog", "nyc.empty")):
        shown, as_json = call(*words, "-f", folder), call(*words, "--json", "-f", folder)
        assert (shown.code, len(shown.out.splitlines()), as_json.code, as_json.out) == (0, 1, 0, "")


def test_tail_prints_the_last_records_of_all_buckets(folder):
    rows = call("tail", "nyc.flights", "-n", 2, "--json", "-f", folder).rows
    assert [list(row)[:4] for row in rows] == [SYSTEM, SYSTEM]
    assert [row["a"] for row in rows] == [4, 5]
    lines = call("tail", "nyc.planes", "-f", folder).out.splitlines()
    assert [line.split()[0] for line in lines] == ["_change_type", "+I", "-U", "+U", "+I", "-D"]


def test_tail_from_a_moment_ends_after_so_many(folder):
    for follow in ((), ("--follow",)):
        shown = call("tail", "nyc.planes", "--from", "earliest", "--rows", 3, "--json", *follow, "-f", folder)
        assert [(row["_change_type"], row["v"]) for row in shown.rows] == [("+I", 1.5), ("-U", 1.5), ("+U", "NaN")]
    assert call("tail", "nyc.planes", "--from", "latest", "--json", "-f", folder).out == ""


def test_tail_follows_until_ctrl_c(shell_lab):
    with process("tail", "nyc.empty", "--follow", "--json", "-f", shell_lab.folder) as following:
        with shell_lab.connection.append_writer("nyc.empty") as writer:
            writer.append([{"a": 7}]).result()
        # The record is printed whether it came before the command looked or after.
        assert following.stdout.readline().endswith('"a":7}\n')
        with shell_lab.connection.append_writer("nyc.empty") as writer:
            writer.append([{"a": 8}]).result()
        assert following.stdout.readline().endswith('"_log_offset":1,' + following_rest(shell_lab))
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=30)
    assert (following.returncode, out, err) == (0, "", "")


def following_rest(shell_lab):
    (record,) = call("tail", "nyc.empty", "-n", 1, "--json", "-f", shell_lab.folder).rows
    return f'"_commit_timestamp":"{record["_commit_timestamp"]}","a":8}}\n'


def test_a_reader_that_goes_away_ends_a_command_quietly(shell_lab):
    with shell_lab.connection.append_writer("nyc.flights") as writer:
        writer.append([{"a": 100 + a, "s": "x" * 100} for a in range(20_000)]).result()
    with process("changelog", "nyc.flights", "--json", "-f", shell_lab.folder) as reading:
        assert reading.stdout.readline().startswith("{")
        reading.stdout.close()
        assert reading.stderr.read() == ""
        assert reading.wait(timeout=60) == 0


def test_seek(folder):
    (row,) = call("changelog", "nyc.planes", "-n", 1, "--json", "-f", folder).rows
    assert len(call("changelog", "nyc.planes", "-n", 10**20, "--json", "-f", folder).rows) > 1
    first_ms = parse_moment(row["_commit_timestamp"])
    expected = [{"partition": None, "bucket": 0, "offset": 0, "timestamp": format_moment(first_ms), "lives": "local"}]
    for time in (first_ms, format_moment(first_ms)):
        assert call("seek", "nyc.planes", time, "--json", "-f", folder).rows == expected
    now, future = (
        call("seek", "nyc.planes", time, "--json", "-f", folder).rows for time in ("now", "2999-01-01T00:00:00Z")
    )
    assert now == future
    assert now[0]["lives"] == "end"
    assert call("seek", "nyc.planes", first_ms, "-f", folder).out.splitlines()[1].split()[-1] == "local"


def test_changelog_and_its_net_changes(folder):
    every = call("changelog", "nyc.planes", "--json", "-f", folder).rows
    assert [(row["_change_type"], row["k"]) for row in every] == [("+I", 1), ("-U", 1), ("+U", 1), ("+I", 2), ("-D", 2)]
    net = call("changelog", "nyc.planes", "--net", "--columns", "k", "--json", "-f", folder).rows
    assert [(row["_change_type"], row["k"]) for row in net] == [("INSERT", 1)]
    start = every[3]["_commit_timestamp"]
    later = call("changelog", "nyc.planes", "--from", start, "--json", "-f", folder).rows
    assert later == [row for row in every if row["_commit_timestamp"] >= start]
    assert call("changelog", "nyc.planes", "--to", "earliest", "--json", "-f", folder).out == ""


def test_diff(folder):
    before = call("changelog", "nyc.planes", "-n", 1, "--json", "-f", folder).rows[0]["_commit_timestamp"]
    found = call("diff", "nyc.planes", before, "--json", "-f", folder)
    assert [(row["_change_type"], row["k"], row["v"]) for row in found.rows] == [
        ("UPDATE_BEFORE", 1, 1.5), ("UPDATE_AFTER", 1, "NaN"),
    ]  # fmt: skip
    back = call("diff", "nyc.planes", "now", before, "-f", folder)
    assert (back.code, len(back.out.splitlines())) == (0, 3)
    assert "0 added, 0 removed, 1 changed" in back.err


def test_moments_of_the_command_line():
    assert [moment(text) for text in (None, "123", "2013", "now", str(2**63 - 1))] == [
        None,
        123,
        2013,
        "now",
        2**63 - 1,
    ]
    for text in (str(2**63), "9" * 5000):
        with pytest.raises(InvalidTimestampError):
            moment(text)
    assert names("a, b,c") == ["a", "b", "c"]
