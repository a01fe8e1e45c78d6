"""The tests of catalogs: lake tables are made, taken over, altered, dropped and renamed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from fluss_lab.errors import (
    CommitConflictError,
    LakeTableExistsError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY
from fluss_lab.model import DataType, PartitionInfo, TableInfo
from fluss_lab.model.schema import with_columns
from fluss_lab.testing.conformance.kit import (
    COLUMNS,
    EPOCH_MS,
    LakeFormat,
    LakeKit,
    log_records,
    partition_id,
    records,
    row_of,
    summary,
)


def alter(info: TableInfo, **added: str) -> TableInfo:
    """Return a table with columns added at its end."""
    schema = with_columns(info.schema, [(name, DataType.parse(text), None) for name, text in added.items()])
    return info.with_schema(info.schema_id + 1, schema)


class CatalogConformance(LakeFormat):
    """What `LakeCatalog` promises."""

    def test_a_table_is_made_and_empty(self, kit: LakeKit) -> None:
        """A new table has no snapshot, or one without a row that no round made."""
        info = kit.table()
        newest = kit.newest(info)
        assert newest is None or not kit.rows(info, newest).num_rows
        assert kit.missing(info, None) is None

    def test_making_it_again_changes_nothing(self, kit: LakeKit) -> None:
        """A repeated call, also after commits, leaves the table as it is."""
        info = kit.table()
        kit.catalog.create_table(info)
        snapshot = kit.append(info, 3)
        kit.again().catalog.create_table(info)
        assert kit.newest(info) == snapshot
        assert kit.rows(info, snapshot).num_rows == 3

    def test_a_creation_that_was_cut_off_is_taken_over(self, kit: LakeKit) -> None:
        """A table of the same layout without snapshot becomes the new one's; the old one's rounds are over."""
        old = kit.table(table_id=7)
        new = kit.table(table_id=8)
        kit.append(new, 3)
        with pytest.raises((TableNotFoundError, UnsupportedError)):
            kit.factory.describe_table(old)

    def test_another_table_of_that_name_is_refused(self, kit: LakeKit) -> None:
        """A table with rows, or of another layout, is not taken over, and stays."""
        info = kit.table(table_id=7)
        with pytest.raises(LakeTableExistsError, match="db"):
            kit.table({"other": "string"}, table_id=8)
        snapshot = kit.append(info, 3)
        with pytest.raises(LakeTableExistsError):
            kit.table(table_id=8)
        assert kit.rows(info, snapshot).num_rows == 3

    def test_columns_are_added(self, kit: LakeKit) -> None:
        """Rows written before a column existed have null there; writers of the old and the new columns both go on."""
        old = kit.table()
        first = kit.append(old, 3)
        stale = kit.write(old, [records(old, 2, 3)])
        new = alter(old, extra="int", note="string")
        kit.catalog.alter_table(new)
        kit.again().catalog.alter_table(new)
        kit.commit(old, stale)
        rows = [row_of(n) | {"extra": n, "note": "x"} for n in (5, 6)]
        last = kit.commit(
            new, kit.write(new, [log_records(pa.RecordBatch.from_pylist(rows, new.schema.arrow_schema), 5)])
        )
        found = kit.rows(new, last)
        assert found.schema.equals(new.schema.arrow_schema)
        assert found["extra"].to_pylist() == [None] * 5 + [5, 6]
        assert found["id"].to_pylist() == list(range(7))
        # Who still has the old definition reads what it knows.
        assert kit.rows(old, last).schema.names == old.schema.names
        assert kit.rows(new, first)["note"].to_pylist() == [None] * 3

    def test_an_alteration_is_taken_back(self, kit: LakeKit) -> None:
        """Columns of an alteration that was cut off go again, and their names are free, for any type."""
        old = kit.table()
        snapshot = kit.append(old, 2)
        kit.catalog.alter_table(alter(old, extra="int"))
        kit.catalog.alter_table(old)
        new = alter(old, extra="string")
        kit.catalog.alter_table(new)
        assert kit.rows(new, snapshot)["extra"].to_pylist() == [None, None]

    def test_what_is_not_there_cannot_be_altered(self, kit: LakeKit) -> None:
        """An absent table, or another table's, is an error."""
        with pytest.raises(TableNotFoundError):
            kit.catalog.alter_table(kit.info())
        kit.append(kit.table(table_id=7), 1)
        with pytest.raises((TableNotFoundError, UnsupportedError)):
            kit.catalog.alter_table(kit.info(table_id=8))

    def test_a_dropped_table_is_gone(self, kit: LakeKit) -> None:
        """Dropping twice is fine, and the name is free for a table that shares nothing with the first."""
        info = kit.table()
        snapshot = kit.append(info, 3)
        kit.catalog.drop_table(info.path, info.table_id)
        kit.catalog.drop_table(info.path, info.table_id)
        with pytest.raises(TableNotFoundError):
            kit.newest(info)
        with pytest.raises(NotFoundError):
            kit.rows(info, snapshot)
        second = kit.table(table_id=8)
        newest = kit.newest(second)
        assert newest is None or not kit.rows(second, newest).num_rows
        assert kit.rows(second, kit.append(second, 2)).num_rows == 2

    def test_another_tables_lake_table_is_left_alone(self, kit: LakeKit) -> None:
        """A drop by an id that the lake table does not have does nothing, kept or not."""
        info = kit.table(table_id=7)
        snapshot = kit.append(info, 3)
        kit.catalog.drop_table(info.path, 6)
        kit.catalog.drop_table(info.path, 6, keep=True)
        assert kit.rows(info, snapshot).num_rows == 3

    def test_a_kept_table_is_renamed(self, kit: LakeKit) -> None:
        """Its rows are there under the name and id, and a table of the old name does not touch them."""
        info = kit.table(table_id=7)
        snapshot = kit.append(info, 3)
        kit.catalog.drop_table(info.path, 7, keep=True)
        kit.catalog.drop_table(info.path, 7, keep=True)
        kept = kit.info(name="t__7", table_id=7)
        second = kit.table(table_id=8)
        kit.append(second, 5)
        kit.catalog.drop_table(second.path, 8)
        assert kit.rows(kept, snapshot).num_rows == 3

    def test_a_name_that_is_taken_keeps_nothing(self, kit: LakeKit) -> None:
        """A table cannot be kept under a name that another one has; it stays where it is."""
        info = kit.table(table_id=7)
        snapshot = kit.append(info, 3)
        kit.append(kit.table(name="t__7", table_id=9), 1)
        with pytest.raises(LakeTableExistsError):
            kit.catalog.drop_table(info.path, 7, keep=True)
        assert kit.rows(info, snapshot).num_rows == 3

    def test_a_partition_is_dropped(self, kit: LakeKit) -> None:
        """Its rows go and others stay; the commit is ours, says nothing of offsets, and is made once."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        kit.append(info, 3, partition="a")
        before = kit.append(info, 4, partition="b")
        a = PartitionInfo(partition_id("a"), "a")
        kit.catalog.drop_partition(info, a)
        after = kit.newest(info)
        assert after not in {None, before}
        kit.again().catalog.drop_partition(info, a)
        assert kit.newest(info) == after
        assert after is not None
        assert set(kit.rows(info, after)["p"].to_pylist()) == {"b"}
        assert kit.rows(info, before).num_rows == 7
        missing = kit.missing(info, before)
        assert missing is not None
        assert missing.snapshot_id == after
        assert missing.offsets == {}

    def test_no_older_plan_brings_a_dropped_partition_back(self, kit: LakeKit) -> None:
        """What was planned before the drop cannot be committed after it, though nothing was there to drop."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        planned = kit.append(info, 1, partition="b")
        late = kit.write(info, [records(info, 2, partition="a")], partition="a")
        kit.catalog.drop_partition(info, PartitionInfo(partition_id("a"), "a"))
        with kit.committer(info) as committer, pytest.raises(CommitConflictError):
            committer.commit(committer.to_committable([late.result]), planned, summary(info, late))

    def test_a_partition_made_again_is_another_one(self, kit: LakeKit) -> None:
        """A later partition of the same name has its own drop, and offsets say which of the two they are of."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        entry = {"partition_id": 1, "partition_name": "a", "bucket": 0, "offset": 3, "max_timestamp": EPOCH_MS + 2}
        first = kit.write(info, [records(info, 3, partition="a")], partition="a")
        kit.commit(info, first, **{BUCKET_OFFSET_KEY: json.dumps([entry])})
        kit.catalog.drop_partition(info, PartitionInfo(1, "a"))
        last = kit.append(info, 2, partition="a")
        found = kit.missing(info, None)
        assert found is not None
        assert found.partition_ids == {"a": partition_id("a")}
        assert found.offsets["a", 0].end == 2
        assert found.offsets["a", 0].max_timestamp_ms == EPOCH_MS + 1
        assert kit.rows(info, last).num_rows == 2
        kit.catalog.drop_partition(info, PartitionInfo(partition_id("a"), "a"))
        newest = kit.newest(info)
        assert newest is not None
        assert kit.rows(info, newest).num_rows == 0

    def test_dropping_a_partition_of_an_absent_table_is_fine(self, kit: LakeKit) -> None:
        """There is nothing to do."""
        info = kit.info({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        kit.catalog.drop_partition(info, PartitionInfo(1, "a"))
