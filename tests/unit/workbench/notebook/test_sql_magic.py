"""The options of ``%%fluss_sql``, and the lab that it means; with Spark in tests/spark/test_lab_sql.py."""

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import fluss_lab
from fluss_lab.errors import InvalidRequestError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab
from fluss_lab.workbench.notebook.sql_magic import SHOWN_ROWS, SqlCell, chosen_lab, run_cell


def lab_of(cluster):
    return Lab(cluster.connection, folder=None, attachment=None, place={})


@pytest.fixture(scope="module")
def clusters():
    with EmbeddedCluster() as one, EmbeddedCluster() as other:
        yield one, other


@pytest.mark.parametrize(
    ("line", "cell", "expected"),
    [
        ("", "select 1\n", SqlCell("select 1", None, None, None, SHOWN_ROWS)),
        ("select 1", None, SqlCell("select 1", None, None, None, SHOWN_ROWS)),
        ("--into x", "select 1", SqlCell("select 1", "x", None, None, None)),
        ("--into=x --limit=5", "select 1", SqlCell("select 1", "x", None, None, 5)),
        ("--limit all", "select 1", SqlCell("select 1", None, None, None, None)),
        ("--lab mine --as-of '2013-01-01 12:00'", "select 1", SqlCell("select 1", None, "mine", "2013-01-01 12:00", SHOWN_ROWS)),
        ('--as-of "10 minutes ago" select 1', None, SqlCell("select 1", None, None, "10 minutes ago", SHOWN_ROWS)),
        ("--as-of 123", "select 1", SqlCell("select 1", None, None, 123, SHOWN_ROWS)),
        ("-- a comment", "select 1", SqlCell("-- a comment\nselect 1", None, None, None, SHOWN_ROWS)),
        ("", "--into is no option here\nselect '{x} $y'", SqlCell("--into is no option here\nselect '{x} $y'", None, None, None, SHOWN_ROWS)),
    ],
)  # fmt: skip
def test_options_stand_before_the_statement(line, cell, expected):
    assert SqlCell.parse(line, cell) == expected


@pytest.mark.parametrize(
    ("line", "cell", "words"),
    [
        ("--nope 1", "select 1", "unknown option --nope"), ("--into", "select 1", "--into has no value"),
        ("--into --lab x", "select 1", "--into has no value"), ("--into a.b", "select 1", "name of a variable"),
        ("--into class", "select 1", "name of a variable"), ("--into 'x; y'", "select 1", "name of a variable"),
        ("--into __import__('os')", "select 1", "name of a variable"), ("--lab a()", "select 1", "name of a variable"),
        ("--limit 0", "select 1", "--limit"), ("--limit -3", "select 1", "--limit"), ("--limit many", "select 1", "--limit"),
        ("--limit 99999999999999", "select 1", "--limit"), ("", "", "expected a SQL statement"), ("", None, "expected a SQL statement"),
        ("", " ;\n-- nothing\n/* at\nall */ ;", "expected a SQL statement"), ("--into x", None, "expected a SQL statement"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_runs(line, cell, words):
    with pytest.raises(InvalidRequestError) as raised:
        run_cell(line, cell, {})
    assert words in str(raised.value)


def test_the_lab_is_the_one_that_is_open(clusters):
    one, other = map(lab_of, clusters)
    assert chosen_lab({"lab": one, "x": 1}, None) is one
    assert chosen_lab({"lab": one, "same": one, "_3": other}, None) is one
    assert chosen_lab({"a": one, "b": other}, "b") is other
    with pytest.raises(InvalidRequestError, match=r"several labs are open here \(a, b\): say which, as --lab a"):
        chosen_lab({"a": one, "b": other}, None)
    with pytest.raises(InvalidRequestError, match=r"--lab c: it is no lab; the labs here are a"):
        chosen_lab({"a": one, "c": 3}, "c")
    with pytest.raises(InvalidRequestError, match=r"no lab is open here: lab = fluss_lab\.Lab\.open"):
        chosen_lab({"x": 3}, None)
    with pytest.raises(InvalidRequestError, match="would replace the lab"):
        run_cell("--into lab", "select 1", {"lab": one})


def test_a_closed_lab_is_not_meant(clusters):
    one = lab_of(clusters[0])
    with EmbeddedCluster() as gone:
        closed = lab_of(gone)
        closed.close()
        assert chosen_lab({"old": closed, "lab": one}, None) is one
        with pytest.raises(InvalidRequestError, match=r"no lab is open here \(closed: old\)"):
            chosen_lab({"old": closed}, None)


def test_load_ext_adds_it_and_importing_does_not(capsys):
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        shell.run_line_magic("load_ext", "fluss_lab")
        assert "fluss_sql" in shell.magics_manager.magics["cell"]
        assert "--into NAME" in shell.magics_manager.magics["line"]["fluss_sql"].__doc__
        shell.run_cell("%fluss_sql select 1")
        assert "fluss_sql: no lab is open here" in "".join(capsys.readouterr())
    finally:
        InteractiveShell.clear_instance()
    assert callable(fluss_lab.load_ipython_extension)
    code = "import sys, fluss_lab, fluss_lab.workbench; assert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
