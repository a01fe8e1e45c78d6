"""A lab's folder is one's own: what others could have planted there is refused before anything is opened."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from fluss_lab.errors import LabError
from fluss_lab.server.folder.lab_folder import PATH_BYTES_MAX, check_lab_exists, make_lab_folder
from fluss_lab.server.folder.read_only_lab import home_of, is_read_only
from fluss_lab.server.process.discovery import DISCOVERY_FILE, TOKEN_FILE
from fluss_lab.server.process.server_node import ServerNode

#: Of a folder for which there is a path, in Linux, and none for the files of a server in it.
LONGEST_PATH = 4092

FILES = [TOKEN_FILE, DISCOVERY_FILE, "metadata.db", "server.lock", "start.lock", "server-options.json", "server.log"]


def test_a_folder_is_made_for_its_owner_only(tmp_path):
    folder = tmp_path / "a" / "lab"
    make_lab_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    make_lab_folder(folder)


def test_a_path_that_sqlite_does_not_open_is_refused_before_anything_is_made(tmp_path):
    """Seen: half a lab, and `metadata.db: unable to open database file`."""
    folder = tmp_path
    while (left := PATH_BYTES_MAX - len(str(folder))) > 1:
        folder /= "x" * min(200, left - 1 - (left == 202))
    assert len(str(folder)) == PATH_BYTES_MAX
    longer = folder.with_name(f"{folder.name}x")
    with pytest.raises(
        LabError, match="has 489 bytes, expected at most 488, as SQLite opens no files with longer paths"
    ):
        make_lab_folder(longer)
    assert list(tmp_path.iterdir()) == []
    make_lab_folder(folder)
    (folder / "lake").mkdir()
    for name in ("metadata.db", "lake/catalog.db"):
        with closing(sqlite3.connect(folder / name)) as db:
            db.execute("PRAGMA journal_mode = wal")
            db.execute("CREATE TABLE t (a)")
    longer.mkdir()
    (tmp_path / "link").symlink_to(longer)
    with pytest.raises(LabError, match="has 489 bytes"):
        make_lab_folder(tmp_path / "link")


@pytest.mark.parametrize("look", [check_lab_exists, is_read_only, home_of])
def test_a_folder_that_cannot_be_looked_into_is_reported(tmp_path, look):
    # As one that its user may not enter, whoever runs the test: no path to what lies in it is short enough.
    folder = tmp_path
    while (left := LONGEST_PATH - len(str(folder))) > 1:
        folder /= "x" * min(200, left - 1)
    folder.mkdir(mode=0o700, parents=True)
    with pytest.raises(LabError, match="the lab's folder cannot be looked at: File name too long"):
        look(folder)


@pytest.mark.parametrize("check", [make_lab_folder, check_lab_exists])
def test_what_can_be_no_folder_is_reported(tmp_path, check):
    with pytest.raises(LabError, match="cannot be looked at: File name too long; name another place"):
        check(tmp_path / ("x" * 300))
    link, loop = tmp_path / "link", tmp_path / "loop"
    link.symlink_to(tmp_path / "nowhere")
    loop.symlink_to(loop)
    for place in (link, loop, link / "lab"):
        with pytest.raises(LabError, match=r"found the link .*, which leads nowhere; mend or remove it"):
            check(place)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "lab"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(LabError, match=rf"others may write in it \(mode {mode:o}\).*chmod go-w"):
        make_lab_folder(folder)
    folder.chmod(0o755)
    make_lab_folder(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_planted_link_is_refused_and_what_it_leads_to_is_left(tmp_path, name):
    folder, target = tmp_path / "lab", tmp_path / "target"
    folder.mkdir(mode=0o700)
    target.write_text("keep")
    (folder / name).symlink_to(target)
    with pytest.raises(LabError, match=f"{name}: expected a file, found a link to {target}"):
        make_lab_folder(folder)
    assert target.read_text() == "keep"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", *FILES])
def test_what_belongs_to_another_user_is_refused(tmp_path, name):
    folder = tmp_path / "lab"
    folder.mkdir(mode=0o700)
    if name:
        (folder / name).write_text("planted-token-0123456789abcdef")
    os.chown(folder / name, 65534, 65534)
    with pytest.raises(LabError, match=r"expected a (file|folder) of user .*, found one of "):
        make_lab_folder(folder)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "lab"):
        for check in (make_lab_folder, check_lab_exists):
            with pytest.raises(LabError, match=rf"expected a folder for the lab, found the file {tmp_path / 'file'}"):
                check(folder)


def test_where_a_lab_is_is_known_by_its_metadata(tmp_path):
    with pytest.raises(LabError, match=r"found nothing.*fluss-lab up"):
        check_lab_exists(tmp_path / "typo")
    with pytest.raises(LabError, match="found an empty or other folder"):
        check_lab_exists(tmp_path)
    with ServerNode(tmp_path / "lab"):
        check_lab_exists(tmp_path / "lab")
    check_lab_exists(tmp_path / "lab")
