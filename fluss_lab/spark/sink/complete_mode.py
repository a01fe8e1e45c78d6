"""Batches that are a whole result (output mode ``complete``): which rows of the table are not in it, and go with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.errors import UnsupportedError
from fluss_lab.model.changes import CHANGE_SYMBOLS, ChangeType
from fluss_lab.model.config.options import DELETE_BEHAVIOR, MERGE_ENGINE
from fluss_lab.read.changelog.changelog import CHANGE_TYPE
from fluss_lab.read.table_reader import TableReader
from fluss_lab.records.row_sizes import RowLimit
from fluss_lab.spark.sink.sink_rows import RowForm
from fluss_lab.spark.sink.sink_staging import StagedFile, Stager

#: Of keys that the table holds none is too large.
_NO_LIMIT: Final = RowLimit(1 << 62, keyed=True)


def check_whole(form: RowForm) -> None:
    """See that a table can be made equal to a result.

    Raises:
        UnsupportedError: It cannot: it has no primary key, or keeps rows that are replaced or deleted; or rows say
            themselves what is done with them, or are only parts of rows.
    """
    what = f"write to {form.info.path}: output mode complete: "
    properties = form.info.descriptor.properties
    if not form.keyed:
        raise UnsupportedError(
            f"{what}expected a table with a primary key, for a log table only grows; write to one that has the columns by "
            "which the result is grouped as its primary key, or use output mode append"
        )
    if form.change is not None or form.targets is not None:
        found = f"a column of changes, {form.change!r}" if form.change is not None else f"columns {form.targets}"
        raise UnsupportedError(f"{what}expected whole rows, all of them to be written, found {found}")
    if (behavior := DELETE_BEHAVIOR.of(properties)) in {"ignore", "disable"}:
        raise UnsupportedError(
            f"{what}expected a table that rows can be deleted from, found {DELETE_BEHAVIOR.key}={behavior}"
        )
    if (engine := MERGE_ENGINE.of(properties)) != "default":
        raise UnsupportedError(f"{what}expected a table whose last rows count, found {MERGE_ENGINE.key}={engine}")


def stage_gone(
    connection: Connection, form: RowForm, folder: Path, batch_id: int, staged: Sequence[StagedFile]
) -> StagedFile:
    """Stage a delete for each row of the table whose key a batch does not have.

    Args:
        connection: To the cluster.
        form: How the batch was staged.
        folder: Of staged files.
        batch_id: Spark's number of the batch.
        staged: The batch.

    Raises:
        FlussError: What the table holds cannot be read.

    Cost: reads the keys of the table; memory of its keys and the batch's.
    """
    info = form.info
    keys = pa.schema([info.schema.arrow_schema.field(name) for name in info.schema.primary_key])
    held = TableReader(connection, info.path).scan(columns=keys.names).to_arrow().select(keys.names).cast(keys)
    kept = pa.concat_tables([keys.empty_table(), *_keys_of(folder, staged, keys)])
    gone = held.join(kept, keys.names, join_type="left anti")
    deletes = gone.append_column(CHANGE_TYPE, pa.repeat(CHANGE_SYMBOLS[ChangeType.DELETE], gone.num_rows))
    stager = Stager(folder, RowForm(info, CHANGE_TYPE), batch_id, 0, _NO_LIMIT)
    try:
        for batch in deletes.to_batches():
            stager.add(batch)
        return stager.close()
    except BaseException:
        stager.discard()
        raise


def _keys_of(folder: Path, staged: Sequence[StagedFile], keys: pa.Schema) -> Iterator[pa.Table]:
    for file in staged:
        if file.name:
            rows = pa.ipc.open_file(pa.memory_map(str(folder / file.name))).read_all()
            yield rows.select(keys.names).cast(keys)
