"""Where a lab is: what a person gives that names no place is refused at once, and nothing is made."""

import pytest

import fluss_lab as fl
from fluss_lab.errors import InvalidRequestError, JavaNotFoundError
from fluss_lab.spark.session.java_home import find_java


@pytest.mark.parametrize("folder", ["", "a\0b", "bad\udcff", "~nobody-of-this-name/lab"])
def test_what_names_no_folder_or_file_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="folder: expected the path of one"):
        fl.Lab.open(folder)
    with pytest.raises(InvalidRequestError, match="token_file: expected the path of one"):
        fl.Lab.connect("127.0.0.1:1", token_file=folder)
    assert list(tmp_path.iterdir()) == []


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
