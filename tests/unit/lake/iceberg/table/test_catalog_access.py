"""Access to a catalog: a file that this machine does not have is not made by who only reads."""

import socket

import pytest

from fluss_lab.errors import TableNotFoundError
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.model import TablePath


def test_the_file_of_a_catalog_that_is_elsewhere_is_not_made_by_a_reader(tmp_path):
    file = tmp_path / "lake" / "catalog.db"
    access = CatalogAccess({"type": "sql", "uri": f"sqlite:///{file}", "warehouse": "s3://bucket/lake"})
    with pytest.raises(TableNotFoundError, match=r"another machine has it.*restore it") as caught:
        access.load_table(TablePath("db", "t"))
    assert str(file) in str(caught.value)
    assert socket.gethostname() in str(caught.value)
    assert list(tmp_path.iterdir()) == []
