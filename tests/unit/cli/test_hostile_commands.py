"""Every command with wrong arguments: refused in one line, and nothing is made."""

import pytest

from fluss_lab.cli.commands import commands
from tests.unit.cli.shell_kit import assert_refused, call
from tools.cli_reference import commands_of

pytestmark = pytest.mark.slow

#: Names that are no table's, or of none.
TABLES = (
    "nyc.none", "none.flights", "flights", "", ".", "a.b.c", "nyc.flights;drop", "../../etc/passwd", "nyc.fl\n\x1b[2Jights",
    "nyc." + "x" * 10_000, "nyc.flüge", "nyc.__x", "%s%n", "'; --",
)  # fmt: skip
MOMENTS = (
    "soon",
    "",
    "2013-13-01",
    "1",
    "99999999999999999999",
    "1969-01-01",
    "\x1b[2J",
    "10 years hence",
)
FILTERS = ("nope > 1", "a >", "a = 'x' or", "drop table x", "a = 1; b = 2", "", "s > 1 and (", "__import__('os')")
COLUMNS = ("nope", "a,a", "", "a,,s", "*")
#: By command: the arguments after which a table's path, a moment, ... stand.
READERS = (
    ("show",), ("head",), ("tail",), ("tail", "--follow"), ("tail", "--from", "earliest"), ("changelog",),
    ("changelog", "--net"),
)  # fmt: skip


def _state(folder, place):
    """Return all that a command could have made: tables of the lab, files beside it and in the working directory."""
    tables = call("tables", "-f", folder).out
    beside = {each.name for each in folder.parent.iterdir()}
    return tables, beside, sorted(str(each.relative_to(place)) for each in place.rglob("*"))


@pytest.fixture(scope="module")
def place(tmp_path_factory, shell_lab):
    """A working directory with a file, a folder, and files that cannot be loaded; it stays as it is."""
    path = tmp_path_factory.mktemp("place")
    (path / "full").mkdir()
    (path / "full" / "notes.txt").write_text("x")
    (path / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    (path / "ragged.csv").write_text("id,name\n1,a\n2\n")
    (path / "empty.csv").write_text("")
    (path / "noise.parquet").write_bytes(b"PAR1 noise")
    (path / "noise.json").write_text('{"a": ')
    (path / "latin.csv").write_bytes(b"id\n\xff\xfe\n")
    (path / "notes.txt").write_text("x")
    before = _state(shell_lab.folder, path)
    yield path
    assert _state(shell_lab.folder, path) == before


@pytest.fixture(autouse=True)
def _at_place(place, monkeypatch):
    monkeypatch.chdir(place)


@pytest.fixture
def folder(shell_lab):
    return shell_lab.folder


@pytest.mark.parametrize("table", TABLES)
def test_tables(folder, table):
    for words in READERS:
        assert_refused(call(*words, "-f", folder, "--json", "--", table))
    assert_refused(call("tier", "-f", folder, "--", table))
    assert_refused(call("seek", "-f", folder, "--", table, "now"))
    assert_refused(call("diff", "-f", folder, "--", table, "now"))
    assert_refused(call("export", "-f", folder, "--", table, "out.csv"))
    assert_refused(call("repair", "--adopt", "-f", folder, "--", table))
    if table not in {"nyc.none", "none.flights", "nyc.__x"}:  # a table of that name can be made
        assert_refused(call("load", "-f", folder, "--", "rows.csv", table))


@pytest.mark.parametrize("database", ["none", "", "a.b", "../x", "x\ny", "x" * 5000])
def test_databases(folder, database):
    assert_refused(call("tables", "-f", folder, "--", database))


@pytest.mark.parametrize("moment", MOMENTS)
def test_moments(folder, moment):
    for words in (
        ("seek", "nyc.planes"),
        ("diff", "nyc.planes"),
        ("diff", "nyc.planes", "now"),
        ("head", "nyc.planes", "--as-of"),
        ("export", "nyc.planes", "out.csv", "--as-of"),
        ("tail", "nyc.planes", "--from"),
        ("changelog", "nyc.planes", "--from"),
        ("changelog", "nyc.planes", "--to"),
    ):
        assert_refused(call(*words, moment, "-f", folder))


def test_a_state_of_the_future(folder):
    for words in (
        ("head", "nyc.planes", "--as-of"),
        ("diff", "nyc.planes"),
        ("export", "nyc.planes", "out.csv", "--as-of"),
    ):
        assert_refused(call(*words, "2999-01-01", "-f", folder))


@pytest.mark.parametrize("condition", FILTERS)
def test_filters(folder, condition):
    for words in (("head", "nyc.flights"), ("export", "nyc.flights", "out.csv")):
        assert_refused(call(*words, "--where", condition, "-f", folder))


@pytest.mark.parametrize("columns", COLUMNS)
def test_columns(folder, columns):
    for words in (
        ("head", "nyc.flights"),
        ("export", "nyc.flights", "o.csv"),
        ("tail", "nyc.flights"),
        ("changelog", "nyc.flights"),
    ):
        assert_refused(call(*words, "--columns", columns, "-f", folder))


@pytest.mark.parametrize(
    "file",
    [
        "none.csv", "full", "ragged.csv", "empty.csv", "noise.parquet", "noise.json", "latin.csv", "notes.txt", "",
        "http://example.org/x.csv", "a\nb.csv", "x" * 5000, "/dev/null", "~nobody_of_this_name/x.csv",
    ],
)  # fmt: skip
def test_files_to_load(folder, file):
    assert_refused(call("load", "-f", folder, "--", file, "made.here"))


@pytest.mark.parametrize(
    "command", [("up",), ("status",), ("down",), ("config",), ("lab",), ("tables", "-f"), ("doctor",)]
)
def test_a_folder_below_a_file(tmp_path, command):
    file = tmp_path / "notes.txt"
    file.write_text("")
    done = call(*command, file / "lab")
    assert_refused(done, 2)
    assert f"expected a folder, found the file {file}" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("--primary-key", "nope"), ("--primary-key", ""), ("--partitioned-by", "nope"), ("--type", "id"), ("--type", "id=word"),
        ("--type", "nope=int"), ("--rename", "x"), ("--rename", "nope=y"), ("--rename", "id=a b"), ("--property", "x"),
        ("--property", "no.such=1"), ("--property", "table.datalake.enabled=maybe"), ("--columns", "nope"),
        ("--format", "json"), ("--format", "parquet"), ("--encoding", "klingon"), ("--delimiter", "ab"),
        ("--buckets", "1000000"),
    ],
)  # fmt: skip
def test_how_a_file_is_loaded(folder, words):
    assert_refused(call("load", "rows.csv", "made.here", *words, "-f", folder))


@pytest.mark.parametrize(
    "file", ["rows.csv", "full", "out", "out.xls", "none/out.csv", "rows.csv/out.csv", "x" * 300 + ".csv", ".", "/", ""]
)
def test_files_to_export(folder, file):
    assert_refused(call("export", "-f", folder, "--", "nyc.flights", file))


@pytest.mark.parametrize(
    "words",
    [
        ("head",), ("head", "nyc.flights", "-n", "-1"), ("head", "nyc.flights", "-n", "many"), ("tail", "nyc.flights", "-n", "0"),
        ("head", "nyc.flights", "more"), ("seek", "nyc.flights"), ("diff", "nyc.flights"), ("load", "rows.csv"),
        ("load", "rows.csv", "a.b", "--format", "xls"), ("load", "rows.csv", "a.b", "--start-row", "-1"), ("export", "nyc.flights"),
        ("export", "nyc.flights", "x.csv", "--format", "orc"), ("sql",), ("nope",), ("head", "--nope"), ("completion",),
        ("head", "nyc.flights", "-f", "rows.csv"), ("sql", "select 1", "--rows", "0"),
    ],
)  # fmt: skip
def test_command_lines_that_cannot_be(words):
    assert_refused(call(*words), 2)


def _commands_with_folder():
    wanted = {"show": ["a.b"], "head": ["a.b"], "tail": ["a.b"], "seek": ["a.b", "now"], "changelog": ["a.b"], "diff": ["a.b", "now"],
              "load": ["rows.csv", "a.b"], "export": ["a.b", "out.csv"], "sql": ["select 1"], "tables": [], "tier": []}  # fmt: skip
    known = {name.split()[1] for name, _ in commands_of(commands, "fluss-lab")}
    assert wanted.keys() <= known
    return sorted(wanted.items())


@pytest.mark.parametrize(("name", "words"), _commands_with_folder())
def test_no_reader_makes_a_lab(place, name, words):
    for folder in ("typo", "full", "no/where", "x" * 300, "a\nb"):
        assert_refused(call(name, *words, "-f", folder))
    assert_refused(call(name, *words))  # the default, of which there is none here
    assert_refused(call(name, *words, "-f", "~nobody_of_this_name/lab"), 2)
