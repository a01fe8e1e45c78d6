"""What is kept of tables' definitions is never outdated: whatever anybody changes is checked before the next write."""

from __future__ import annotations

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.table.layout import (
    FIELD_IDS_PROPERTY,
    TABLE_ID_PROPERTY,
    checked_layout,
    known_layout,
)

COLUMNS = {"id": "int not null", "name": "string", "n": "int"}


def altered(lake, **changes):
    with lake.update_schema(allow_incompatible_changes=True) as update:
        for step, arguments in changes.items():
            getattr(update, step)(*arguments)


def described(lake, **properties):
    with lake.transaction() as change:
        change.set_properties(properties)


REFUSED = {
    "column dropped": lambda lake: altered(lake, delete_column=["n"]),
    "column required": lambda lake: altered(lake, add_column=["more", LongType(), None, True]),
    "identifier fields": lambda lake: altered(lake, set_identifier_fields=["id"]),
    "partition spec": lambda lake: lake.update_spec().add_field("n", IdentityTransform(), "n_part").commit(),
    "owner": lambda lake: described(lake, **{TABLE_ID_PROPERTY: "8"}),
    "field ids": lambda lake: described(lake, **{FIELD_IDS_PROPERTY: "{}"}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_others_change_is_refused_though_the_layout_was_checked_before(lake, kind):
    key = {"primary_key": ["name"]} if kind == "identifier fields" else {}
    info = lake.table(COLUMNS, **key)
    for _ in range(2):
        assert lake.factory.describe_table(info)["location"] == lake.load(info).location()
    REFUSED[kind](lake.load(info))
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"db\.t"):
            lake.factory.describe_table(info)
        with pytest.raises(UnsupportedError, match=r"db\.t"):
            checked_layout(info, lake.load(info))


def test_what_does_no_harm_is_known_at_once(lake):
    info = lake.table(COLUMNS)
    lake.factory.describe_table(info)
    altered(lake.load(info), rename_column=["name", "label"], add_column=["extra", LongType()])
    assert "label" in lake.factory.describe_table(info)["schema"]


def test_a_layout_is_made_once_for_each_definition(lake):
    kept, info = EntryCache(), lake.table(COLUMNS)
    first = kept.layout(info, lake.load(info))
    assert first == checked_layout(info, lake.load(info)) == kept.known_layout(info, lake.load(info))
    assert kept.layout(info, lake.load(info)) is first
    described(lake.load(info), **{"write.parquet.compression-codec": "snappy"})
    assert kept.layout(info, lake.load(info)) is first
    wider = lake.info(COLUMNS | {"more": "string"})
    lake.catalog.alter_table(wider)
    for table, names in ((wider, [*COLUMNS, "more"]), (info, [*COLUMNS])):
        for found in (kept.layout(table, lake.load(wider)), kept.known_layout(table, lake.load(wider))):
            assert [field.name for field in found.schema.fields][:-3] == names
            assert found == known_layout(table, lake.load(wider))
    lake.catalog.drop_table(info.path, 7)
    again = lake.table(COLUMNS, table_id=8)
    assert kept.layout(again, lake.load(again)) == checked_layout(again, lake.load(again))
    with pytest.raises(UnsupportedError, match="another Fluss table"):
        kept.layout(info, lake.load(again))
