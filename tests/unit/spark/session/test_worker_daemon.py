"""Which pyspark the workers import, and how they end."""

import gc
import inspect
import os
import re
import socket
import sys
import tempfile
import warnings
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark import daemon

from fluss_lab.spark.session.worker_daemon import UNCLOSED, QuietTraces, ends_quietly, print_words, without_zips

_PACKAGES = str(Path(pyspark.__file__).parents[1])
_LIB = Path(pyspark.__file__).parent / "python" / "lib"
_ZIPS = [str(_LIB / "pyspark.zip"), str(_LIB / "py4j-0.10.9.9-src.zip")]


def test_the_archives_of_the_installed_package_go():
    assert Path(py4j.__file__).is_relative_to(_PACKAGES)
    assert without_zips(["", *_ZIPS, "/x", _PACKAGES]) == ["", "/x", _PACKAGES]


def test_they_stay_where_the_package_is_not():
    assert without_zips([*_ZIPS, "/x"]) == [*_ZIPS, "/x"]


def test_archives_of_another_spark_stay(tmp_path):
    other = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    assert without_zips([str(other), _PACKAGES]) == [_PACKAGES], "of a Spark home without them"
    other.parent.mkdir(parents=True)
    other.touch()
    assert without_zips([str(other), _PACKAGES]) == [str(other), _PACKAGES]
    assert without_zips(["/jobs/mine.zip", *_ZIPS, _PACKAGES]) == ["/jobs/mine.zip", _PACKAGES]


def test_only_what_pyspark_itself_leaves_unclosed_is_passed_over(tmp_path):
    """With PYTHONWARNINGS=error, or -X dev, each worker's end printed traces into the notebook."""
    path = tmp_path / "task's own"
    path.touch()
    with warnings.catch_warnings(record=True) as caught, tempfile.TemporaryDirectory() as short:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", UNCLOSED, ResourceWarning)
        os.fdopen(os.open(path, os.O_RDONLY), "rb", 8192)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(f"{short}/s.sock")
        del listening
        gc.collect()
        assert [str(each.message) for each in caught] == []
        open(path, "rb")  # noqa: SIM115  that is the point
        socket.socket()
        gc.collect()
    assert ["task's own" in str(each.message) for each in caught] == [True, False]


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_worker_that_spark_hung_up_on_ends_without_a_trace(error):
    def worker(socket, authenticated):
        assert (socket, authenticated) == ("socket", True)
        raise error

    assert ends_quietly(worker)("socket", True) == 1


def test_other_errors_of_a_worker_are_shown():
    def worker():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        ends_quietly(worker)()
    assert ends_quietly(lambda: 0)() == 0


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, ValueError])
def test_what_pyspark_s_daemon_prints_is_left_out_only_where_spark_has_hung_up(error, capsys):
    """A worker that could not give its rest to a JVM that was ending printed its traceback into the notebook."""
    try:
        raise error("why")
    except error:
        QuietTraces.print_exc()
        print_words("failed to flush:\n" + QuietTraces.format_exc(), file=sys.stderr)
    said = capsys.readouterr().err
    assert said.count("ValueError: why") == (2 if error is ValueError else 0)
    assert bool(said) == (error is ValueError)
    print_words("otherwise", file=sys.stderr)
    assert capsys.readouterr().err == "otherwise\n"


def test_pyspark_s_daemon_prints_by_the_names_that_are_replaced():
    code = inspect.getsource(daemon)
    assert {*re.findall(r"traceback\.(\w+)", code)} == {"format_exc", "print_exc"}
    assert "print(" in code
