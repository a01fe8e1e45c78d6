"""The trial of a store: an object written, read and deleted, and words for what does not go."""

import socket

import pytest
from pyiceberg.io import load_file_io

from fluss_lab.errors import StorageError
from fluss_lab.lake.iceberg.files.store_probe import try_store


def test_nothing_is_left_of_a_trial(tmp_path):
    try_store(load_file_io({}), f"file://{tmp_path}/warehouse/")
    assert list((tmp_path / "warehouse").iterdir()) == []


def test_a_place_that_takes_nothing_is_named_with_what_to_do(tmp_path):
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(StorageError) as caught:
        try_store(load_file_io({}), f"file://{tmp_path}/taken")
    for expected in (
        str(tmp_path / "taken"),
        "written from",
        socket.gethostname(),
        "expected a bucket",
        "make the bucket",
    ):
        assert expected in str(caught.value)
