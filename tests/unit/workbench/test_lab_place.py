"""Where a lab is: what a person gives that names no place is refused at once, and nothing is made."""

import os
import subprocess
import sys

import pytest

import fluss_lab as fl
from fluss_lab.errors import InvalidRequestError, JavaNotFoundError, StorageError
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.model.named_paths import name_fault
from fluss_lab.server.server_options import default_lake_options
from fluss_lab.spark.session.java_home import find_java


@pytest.mark.parametrize("folder", ["", "a\0b", "bad\udcff", "~nobody-of-this-name/lab"])
def test_what_names_no_folder_or_file_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="folder: expected the path of one"):
        fl.Lab.open(folder)
    with pytest.raises(InvalidRequestError, match="token_file: expected the path of one"):
        fl.Lab.connect("127.0.0.1:1", token_file=folder)
    assert list(tmp_path.iterdir()) == []


def test_why_a_text_names_no_folder_is_said():
    assert name_fault("lab é") is None
    assert name_fault("bad\udcff") == "it has bytes that are no text in utf-8; rename it"
    assert "code 0" in str(name_fault("a\0b"))
    code = "from fluss_lab.model.named_paths import name_fault as f; print(*map(ascii, (f('bad'+chr(0xdcff)), f('e'+chr(233)))), sep='|')"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    bytes_are_none, has_none = done.stdout.split("|")
    assert "no text in ascii; have Python use UTF-8: PYTHONUTF8=1" in bytes_are_none
    assert "ascii, in which this process names files, has no" in has_none


def test_where_the_working_directory_was_removed_a_lab_is_opened_by_its_path(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidRequestError, match="the working directory of this process was removed"):
        fl.Lab.open("lab")
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "100ms"}) as lab:
        (java,) = [row for row in lab.doctor() if not row["ok"]]
        assert java["check"] == "java"
        assert "the working directory of this process was removed" in java["found"]
        with pytest.raises(JavaNotFoundError, match="the working directory of this process was removed"):
            find_java()
        lab.create_database("d")
        # The server stands there too; what pyiceberg finds no settings in was called damaged, and to be restored.
        with pytest.raises(StorageError, match=r"the working directory of process \d+ was removed.* fluss-lab down"):
            lab.create_table("d.t", {"id": "bigint"}, properties={"table.datalake.enabled": True})
        with pytest.raises(StorageError, match=f"the working directory of process {os.getpid()} was removed"):
            IcebergLakeStorage(default_lake_options(tmp_path)).access.catalog()
